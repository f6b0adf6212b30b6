"""The stages of ZeRO side by side: what lies still is held against formulas, what is sent is read off operations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kit.plot.figure import Axes, Boxes, Figure, Labels
from kit.topics.zero.cost import FP32, MIXED
from kit.topics.zero.figures import formula_of, last_step, stage_figures, stages
from kit.trace.facts import Account, MemorySample, Meta, Operation, Pass, RankTrace, Region
from kit.trace.trace import Trace

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
    rest = MemorySample(1200, "backward ends", weights, gradients, optimizer)
    fullest = replace(rest, time=1100, label="mm", activations=2 * P, buffers=P, gradients=gradients // 2)
    later = replace(rest, time=1300, label="sqrt", other=P // 10)
    early = MemorySample(100, "broadcast issued", 3 * weights)
    account = Account(
        "live storages", (early, replace(rest, time=900), fullest, rest, later, MemorySample(1400, "ends"))
    )
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
    return replace(account, samples=tuple(replace(held, other=7) for held in account.samples))


def test_only_the_last_step_is_sent_and_it_agrees_with_the_formula() -> None:
    _, figures = stages(runs(), P)
    assert {stage: sum(one.sent) / P for stage, one in figures.items()} == {0: 6.0, 1: 6.0, 2: 6.0, 3: 9.0}
    assert {stage: one.toll / P for stage, one in figures.items()} == {0: 6.0, 1: 6.0, 2: 6.0, 3: 9.0}
    assert figures[3].sent == (0.0, 3.0 * P, 6.0 * P)


def test_the_step_goes_from_forward_to_the_end_whoever_stepped() -> None:
    for stage in (0, 1):
        step = last_step(run_of(stage, own_step=stage == 0))
        assert [p.name for p in step.passes[2]] == ["forward", "backward", "step"]
        assert [held.label for held in step.ranks[2]] == ["backward ends", "mm", "backward ends", "sqrt"]
        assert step.ranks[2][0].time == 1000, "what was held when it began"
    assert step.passes[2][-1].end == 1300


def test_formulas_by_precision() -> None:
    assert [formula_of(stage, FP32) for stage in range(4)] == ["16P", "8P + 8P/n", "4P + 12P/n", "16P/n"]
    assert [formula_of(stage, MIXED) for stage in range(4)] == ["16P", "4P + 12P/n", "2P + 14P/n", "16P/n"]


def bars(figure: Figure) -> tuple[Axes, Axes]:
    """What is held at rest, and what is sent."""
    _, right = figure.columns
    rest, sent = right.axes
    return rest, sent


def boxes(axes: Axes) -> Boxes:
    (found,) = (mark for mark in axes.marks if isinstance(mark, Boxes))
    return found


def test_one_scale_and_one_size_for_every_stage() -> None:
    figures, _ = stage_figures(runs(), P)
    assert len({(figure.height, figure.whole) for figure in figures.values()}) == 1
    assert len({axes.y for figure in figures.values() for axes in figure.columns[0].axes}) == 1
    for stage, figure in figures.items():
        assert figure.columns[0].axes[0].title == f"stage {stage}"
        for axes in bars(figure):
            found = boxes(axes)
            assert found.faint is not None
            strong = {float(left) for left, faint in zip(found.left, found.faint, strict=True) if not faint}
            assert len(strong) == 1, "the bar of one stage"
            labels = [mark for mark in axes.marks if isinstance(mark, Labels) and mark.strong]
            assert [[t for t, s in zip(one.text, one.strong, strict=True) if s] for one in labels][1] == [
                f"stage {stage}"
            ]


def test_bars_are_as_high_as_what_they_say() -> None:
    found = boxes(bars(stage_figures(runs(), P)[0][0])[0])
    tall = found.bottom - found.top
    sizes = [size for stage in range(4) for size in STATE[stage]]
    assert (tall / tall[0]).tolist() == pytest.approx([size / sizes[0] for size in sizes])
    assert found.told[0] == "stage 0: 16 MB, by formula 16 MB; of it parameters 4 MB"


def test_words_say_what_the_picture_says() -> None:
    rest, top, sent = stage_figures(runs(), P)[0][2].said
    assert rest == (
        "At rest a rank holds 7 MB (parameters 4 MB, gradients 1 MB, optimizer state 2 MB);"
        " 4P + 12P/n = 7 MB (1.00 x that was measured)."
    )
    assert top == (
        "At the fullest moment 9.5 MB: on top come activations 2 MB, communication buffers 1 MB; of gradients 500 kB"
        " are still to come."
    )
    assert sent == "It sends 6 MB (reduce-scatter 3 MB, all-gather 3 MB); 2P(n-1)/n elements are 6 MB."


def test_what_cannot_be_shown_is_refused() -> None:
    with pytest.raises(ValueError, match="no stage to show"):
        stages({}, P)
    with pytest.raises(ValueError, match="'fp32' or 'mixed', not 'fp8'"):
        stages(runs(), P, "fp8")
    trace = run_of(1)
    still = replace(trace, ranks=tuple(replace(rank, passes=()) for rank in trace.ranks))
    with pytest.raises(ValueError, match="rank 0 took no training step"):
        stages({1: still}, P)
