"""Stacked areas of memory: what there is to draw, and the same in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kit.panels.results import memory_panel
from kit.plot.figure import Axes, Figure, Line, Stack
from kit.plot.memory import memory_figure
from kit.trace.facts import MemorySample, Pass
from kit.trace.memory import Holdings
from kit.trace.text import size_text
from tests.unit.panels.test_still import picture_of

MB = 1_000_000
ACCOUNT = (
    MemorySample(0, "begins", parameters=4 * MB),
    MemorySample(10, "forward begins", parameters=4 * MB),
    MemorySample(20, "addmm", parameters=4 * MB, activations=3 * MB),
    MemorySample(30, "backward begins", parameters=4 * MB, activations=3 * MB),
    MemorySample(40, "mm", parameters=4 * MB, gradients=4 * MB, activations=1 * MB),
    MemorySample(50, "all_reduce issued", parameters=4 * MB, gradients=4 * MB, buffers=4 * MB),
    MemorySample(60, "step begins", parameters=4 * MB, gradients=4 * MB),
    MemorySample(70, "zeros_like", parameters=4 * MB, gradients=4 * MB, optimizer_state=8 * MB),
    MemorySample(80, "step ends", parameters=4 * MB, gradients=4 * MB, optimizer_state=8 * MB),
    MemorySample(90, "ends"),
)
PASSES = Pass("forward", 10, 25), Pass("backward", 30, 55), Pass("step", 60, 80)


def held(world: int = 2) -> Holdings:
    return Holdings((ACCOUNT,) * world, (PASSES,) * world, "live storages")


def two() -> dict[str, Holdings]:
    less = tuple(replace(one, optimizer_state=one.optimizer_state // 2) for one in ACCOUNT)
    return {"DDP": held(), "stage 1": Holdings((ACCOUNT, less), (PASSES, PASSES), "live storages")}


FORMULAS = {"DDP": {"16P": 16 * MB}, "stage 1": {"8P + 8P/n": 12 * MB, "and activations": 15 * MB}}


KINDS = ("parameters", "gradients", "optimizer state", "activations", "communication buffers")


def plots(figure: Figure) -> list[Axes]:
    return [axes for _, axes in figure.axes()]


def stack(axes: Axes) -> Stack:
    (found,) = (mark for mark in axes.marks if isinstance(mark, Stack))
    return found


def test_a_plot_for_each_rank_of_each_run_and_an_area_for_each_kind() -> None:
    figure = memory_figure(two(), FORMULAS)
    assert [len(column.axes) for column in figure.columns] == [2, 2]
    assert [axes.corner for axes in plots(figure)] == ["rank 0", "rank 1"] * 2
    assert [axes.title for axes in plots(figure)] == ["DDP", "", "stage 1", ""]
    assert all(stack(axes).kinds == KINDS for axes in plots(figure))
    assert [role for role, _ in figure.key] == list(KINDS) and figure.key[-1][1] == "buffers"
    limits = [[text for _, text in axes.limits] for axes in plots(figure)]
    assert limits == [["16P = 16 MB"], [], ["8P + 8P/n = 12 MB", "and activations = 15 MB"], []]


def test_limits_are_lines_at_their_bytes_each_with_its_own_dash() -> None:
    figure = memory_figure(two(), FORMULAS)
    lines = [[mark for mark in axes.marks if isinstance(mark, Line)] for axes in plots(figure)]
    assert [[set(line.y) for line in own] for own in lines] == [[{16 * MB}]] * 2 + [[{12 * MB}, {15 * MB}]] * 2
    assert [dash for dash, _ in plots(figure)[2].limits] == [line.dash for line in lines[2]]
    assert len({line.dash for line in lines[2]}) == 2


def test_all_plots_share_one_axis_in_bytes_and_have_one_size_in_a_row() -> None:
    figure = memory_figure(two(), FORMULAS)
    assert len({(axes.y.low, axes.y.high) for axes in plots(figure)}) == 1
    assert [axes.whole for axes in figure.columns[0].axes] == [axes.whole for axes in figure.columns[1].axes]
    upward = plots(memory_figure(held(), 16 * MB))[0].y
    assert upward.high > 16 * MB and [label for _, label in upward.ticks][:2] == ["0 B", "5 MB"]
    assert [label for _, label in plots(figure)[2].y.ticks if label] == [], "it is said once, at the left"


def test_the_top_of_an_area_is_its_bytes() -> None:
    areas = stack(plots(memory_figure(held(), 16 * MB))[0])
    fullest = areas.tops[-1].argmax()
    assert dict(zip(areas.kinds, areas.tops[:, fullest], strict=True)) == {
        "parameters": 4 * MB, "gradients": 8 * MB, "optimizer state": 16 * MB, "activations": 16 * MB,
        "communication buffers": 16 * MB,
    }  # fmt: skip
    told = "rank 0 after zeros_like (step): 16 MB = parameters 4 MB, gradients 4 MB, optimizer state 8 MB"
    assert areas.told[fullest] == told


def test_passes_stand_where_their_moments_are() -> None:
    stretches = plots(memory_figure(held()))[0].x.stretches
    assert stretches == (("forward", 0.1, 0.3), ("backward", 0.3, 0.6), ("step", 0.6, 0.8))


def test_moments_of_equal_memory_are_one_step_and_the_last_one_ends_at_the_edge() -> None:
    areas = stack(plots(memory_figure(held()))[0])
    assert areas.edges.tolist() == pytest.approx([0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.9, 1.0])
    assert areas.told[0].startswith("rank 0 after begins")


def test_words_say_what_the_picture_says() -> None:
    words = memory_figure(two(), FORMULAS).words
    first, second, third, last = words.splitlines()
    assert first == (
        "DDP, every rank: at most 16 MB, in step (parameters 4 MB, gradients 4 MB, optimizer state 8 MB). Parameters, "
        "gradients and optimizer state together: at most 16 MB; 16P = 16 MB (1.00 x that was measured)."
    )
    assert second.startswith("stage 1, rank 0: at most 16 MB") and third.startswith("stage 1, rank 1: at most 12 MB")
    assert "8P + 8P/n = 12 MB (1.33 x that was measured)" in second and "live storages" in last


def test_a_long_account_stays_a_small_picture() -> None:
    long = tuple(MemorySample(i, "op", other=(i * 7919) % MB) for i in range(20_000))
    areas = stack(plots(memory_figure(Holdings((long,), ((),), "live storages")))[0])
    assert len(areas.told) <= 240 and areas.tops.max() == max(h.other for h in long)


def test_more_ranks_than_fit_are_in_the_words() -> None:
    accounts = tuple((MemorySample(0, "begins", parameters=MB * (rank + 1)),) for rank in range(12))
    many = memory_figure(Holdings(accounts, ((),) * 12, "live storages"))
    assert len(plots(many)) == 8 and "rank 11: at most 12 MB" in many.words


def test_the_panel_and_its_still_picture() -> None:
    panel = memory_panel(two(), FORMULAS)
    assert panel.text() == memory_figure(two(), FORMULAS).words
    text = "".join(picture_of(panel).itertext())
    assert "8P + 8P/n = 12 MB" in text and "DDP, every rank: at most 16 MB" in text


def test_what_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        memory_figure({})
    with pytest.raises(ValueError, match="formula is given for 'stage 2', the runs are DDP, stage 1"):
        memory_figure(two(), {"stage 2": 1.0})
    with pytest.raises(ValueError, match="the runs are DDP, stage 1"):
        memory_figure(two(), 5.0)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (17, "17 B"), (48_000, "48 kB"), (1_254_000, "1.25 MB"), (3.2e9, "3.2 GB")]
)
def test_bytes_as_a_person_reads_them(size: float, text: str) -> None:
    assert size_text(size) == text


def test_workspaces_are_said_where_there_are_some() -> None:
    kept = tuple(replace(one, workspaces=8 * MB, allocator=MB) for one in ACCOUNT)
    figure = memory_figure(Holdings((kept,), (PASSES,), "cuda allocator"))
    assert "workspaces 8 MB, allocator 1 MB" in figure.words
    sentence = "Workspaces: what cuBLAS keeps for its products; no tensor lies there."
    assert sentence in figure.words
    assert sentence not in memory_figure(held()).words
