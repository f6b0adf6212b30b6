"""The stages of ZeRO side by side: what lies still is held against formulas, what is sent is read off operations."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree as xml

import pytest

from kit import views
from kit.cost.memory import FP32, MIXED
from kit.trace.facts import Account, Holding, Meta, Operation, Pass, RankTrace, Region, Trace
from kit.views.stages import formula_of, stages, step_of
from tests.unit.views.markup import find, parse, text

P, N = 1_000_000, 4
STATE = {0: (4, 4, 8), 1: (4, 4, 2), 2: (4, 1, 2), 3: (1, 1, 2)}  # bytes of each parameter on one of four ranks
SENT = {0: ["all_reduce"], 1: ["reduce_scatter", "all_gather"], 3: ["all_gather", "all_gather", "reduce_scatter"]}
SENT[2] = SENT[1]


def operation(index: int, name: str, issued: int) -> Operation:
    whole, part = Region("in", 0, 0, (P,), "float32"), Region("out", 0, 0, (P // N,), "float32")
    regions = {"all_reduce": (replace(whole, role="inout"),), "reduce_scatter": (whole, part)}.get(
        name, (replace(part, role="in"), replace(whole, role="out"))
    )
    return Operation(0, index, name, "0", tuple(range(N)), f"0/c/{index}", None, regions, 4 * P, issued)


def run_of(stage: int, own_step: bool = False) -> Trace:
    """Two steps on each rank; what counts begins at 1000. own_step: an optimizer of torch's stepped."""
    weights, gradients, optimizer = (size * P for size in STATE[stage])
    rest = Holding(1200, "backward ends", weights, gradients, optimizer)
    fullest = replace(rest, time=1100, label="mm", activations=2 * P, buffers=P, gradients=gradients // 2)
    later = replace(rest, time=1300, label="sqrt", other=P // 10)
    early = Holding(100, "broadcast issued", 3 * weights)
    account = Account("live storages", (early, replace(rest, time=900), fullest, rest, later, Holding(1400, "ends")))
    passes = [Pass(name, at, at + 99) for at in (200, 1000) for name in ("forward", "backward")]
    passes = [replace(p, start=p.start + 100, end=p.end + 101) if p.name == "backward" else p for p in passes]
    if own_step:
        passes = [*passes[:2], Pass("step", 500, 600), *passes[2:], Pass("step", 1250, 1350)]
    before = [operation(0, "broadcast", 50), operation(1, "all_reduce", 250)]
    now = [operation(2 + i, name, 1050 + i) for i, name in enumerate(SENT[stage])]
    ranks = tuple(
        RankTrace(
            rank,
            operations=tuple(replace(op, rank=rank) for op in (*before, *now)),
            passes=tuple(passes),
            account=account,
        )
        for rank in range(N)
    )
    return Trace(Meta("train", "record", N, "gloo", ("cpu",) * N), ranks)


def runs() -> dict[int, Trace]:
    return {stage: run_of(stage, own_step=stage == 0) for stage in range(4)}


def test_what_lies_still_is_the_formulas_value() -> None:
    _, figures = stages(runs(), P)
    for stage, one in figures.items():
        assert one.state == tuple(size * P for size in STATE[stage])
        assert sum(one.state) == one.due == {0: 16, 1: 10, 2: 7, 3: 4}[stage] * P


def test_what_comes_on_top_is_what_the_fullest_moment_has_beyond_that() -> None:
    one = stages(runs(), P)[1][1]
    assert one.peak == (4 + 2 + 2 + 2 + 1) * P
    assert dict(one.beside) == {"activations": 2 * P, "communication buffers": P, "gradients": -2 * P}


def test_the_fullest_moment_is_the_sum_of_what_is_said_of_it() -> None:
    whole = run_of(2)
    ranks = tuple(replace(one, account=_with_leftovers(one.account)) for one in whole.ranks)
    one = stages({2: replace(whole, ranks=ranks)}, P)[1][2]
    assert sum(one.state) + sum(size for _, size in one.beside) == one.peak
    assert dict(one.beside)["other"] == 7, "at rest too, and yet no part of the model's state"


def _with_leftovers(account: Account | None) -> Account:
    assert account is not None
    return replace(account, holdings=tuple(replace(held, other=7) for held in account.holdings))


def test_only_the_last_step_is_sent_and_it_agrees_with_the_formula() -> None:
    _, figures = stages(runs(), P)
    assert {stage: sum(one.sent) / P for stage, one in figures.items()} == {0: 6.0, 1: 6.0, 2: 6.0, 3: 9.0}
    assert {stage: one.toll / P for stage, one in figures.items()} == {0: 6.0, 1: 6.0, 2: 6.0, 3: 9.0}
    assert figures[3].sent == (0.0, 3.0 * P, 6.0 * P)


def test_the_step_goes_from_forward_to_the_end_whoever_stepped() -> None:
    for stage in (0, 1):
        step = step_of(run_of(stage, own_step=stage == 0))
        assert [p.name for p in step.passes[2]] == ["forward", "backward", "step"]
        assert [held.label for held in step.ranks[2]] == ["backward ends", "mm", "backward ends", "sqrt"]
        assert step.ranks[2][0].time == 1000, "what was held when it began"
    assert step.passes[2][-1].end == 1300


def test_formulas_by_precision() -> None:
    assert [formula_of(stage, FP32) for stage in range(4)] == ["16P", "8P + 8P/n", "4P + 12P/n", "16P/n"]
    assert [formula_of(stage, MIXED) for stage in range(4)] == ["16P", "4P + 12P/n", "2P + 14P/n", "16P/n"]


def test_one_scale_and_one_size_for_every_stage() -> None:
    drawings = [parse(views.stages_html(runs(), stage, P)) for stage in range(4)]
    assert len({_sizes(drawing) for drawing in drawings}) == 1
    axes = [[e.text for e in find(drawing, "ls-right")] for drawing in drawings]
    assert axes.count(axes[0]) == 4
    for stage, drawing in enumerate(drawings):
        assert [e.text for e in find(drawing, "ls-strong")].count(f"stage {stage}") == 3, "areas, and both bars"
        faint = find(drawing, "ls-faint")
        assert len(faint) == 2 * 3 and not any(text(group) for group in faint), "bars fade, figures stay legible"


def test_bars_are_as_high_as_what_they_say() -> None:
    drawing = parse(views.stages_html(runs(), 0, P))
    tall = {kind: [float(e.get("height", 0)) for e in find(drawing, kind) if e.tag.endswith("rect")] for kind in KINDS}
    for part, kind in enumerate(KINDS):
        for stage in range(4):
            assert tall[kind][stage] / tall["ls-parameters"][0] == pytest.approx(STATE[stage][part] / 4, rel=0.01)


KINDS = ("ls-parameters", "ls-gradients", "ls-optimizer-state")


def test_words_say_what_the_picture_says() -> None:
    rest, top, sent = views.stages_words(runs(), 2, P)
    assert rest == (
        "At rest a rank holds 7 MB (parameters 4 MB, gradients 1 MB, optimizer state 2 MB);"
        " 4P + 12P/n = 7 MB (1.00 x that was measured)."
    )
    assert top == (
        "At the fullest moment 9.5 MB: on top come activations 2 MB, communication buffers 1 MB; of gradients 500 kB"
        " are still to come."
    )
    assert sent == "It sends 6 MB (reduce-scatter 3 MB, all-gather 3 MB); 2P(n-1)/n elements are 6 MB."
    assert all(line in text(parse(views.stages_html(runs(), 2, P))) for line in (rest, top, sent))


def test_what_cannot_be_shown_is_refused() -> None:
    with pytest.raises(ValueError, match="no stage to show"):
        stages({}, P)
    with pytest.raises(ValueError, match="stage 1 was not run: choose from 0, 2"):
        views.stages_html({0: run_of(0), 2: run_of(2)}, 1, P)
    with pytest.raises(ValueError, match="'fp32' or 'mixed', not 'fp8'"):
        stages(runs(), P, "fp8")
    trace = run_of(1)
    still = replace(trace, ranks=tuple(replace(rank, passes=()) for rank in trace.ranks))
    with pytest.raises(ValueError, match="rank 0 took no training step"):
        stages({1: still}, P)


def _sizes(drawing: xml.Element) -> tuple[str, ...]:
    return tuple(re.findall(r'(?:svg|div)[^>]*? (?:width|height|style)="([^"]*)"', xml.tostring(drawing).decode()))
