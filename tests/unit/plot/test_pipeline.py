"""The picture of a pipeline: a box for every action, what is idle, what the words and the activations say."""

from __future__ import annotations

import numpy as np
import pytest

from kit.cost.pipeline import Timeline, Times, simulated
from kit.plan.families import schedule
from kit.plot.figure import Boxes, Figure, Labels, Stack
from kit.plot.pipeline import pipeline_figure

IDEAL = simulated(schedule("1F1B", 4, 8))


def boxes(figure: Figure, block: int = 0) -> tuple[Boxes, Boxes]:
    """(idle, computed)"""
    idle, computed, *_ = figure.columns[0].axes[block].marks
    assert isinstance(idle, Boxes) and isinstance(computed, Boxes)
    return idle, computed


def test_a_box_for_every_action_from_its_begin_to_its_end() -> None:
    _, drawn = boxes(pipeline_figure({"ideal": IDEAL}, "units"))
    assert list(drawn.left) == [began for row in IDEAL.began for began in row]
    assert list(drawn.right) == [ended for row in IDEAL.ended for ended in row]
    kinds = [drawn.kinds[kind] for kind in drawn.kind]
    assert (kinds.count("forward"), kinds.count("backward")) == (32, 32)
    assert drawn.told[0] == "rank 0 takes micro-batch 0 forward at stage 0, 1 units"


def test_what_runs_together_shares_a_row() -> None:
    run = simulated(schedule("DualPipe", 4, 8), Times(together=2.5))
    _, drawn = boxes(pipeline_figure({"ideal": run}, "units"))
    heights = np.round(drawn.bottom - drawn.top, 6)
    assert (heights == heights.max()).sum() == len(heights) - 2 * len(run.schedule.together)
    for one in range(len(drawn.left)):
        for other in range(one):
            apart = drawn.right[other] <= drawn.left[one] or drawn.right[one] <= drawn.left[other]
            assert apart or drawn.bottom[other] <= drawn.top[one] or drawn.bottom[one] <= drawn.top[other]


def test_words_give_idle_time_overhead_and_activations() -> None:
    (said,) = pipeline_figure({"ideal": IDEAL}, "units").said
    assert said == (
        "ideal: 1F1B on 4 ranks, 8 micro-batches, 33 units; idle 27.3% of the time, an overhead of 37.5% over an ideal "
        "pipeline; activations held at most: 4, 3, 2, 1 by rank"
    )
    idle, _ = boxes(pipeline_figure({"ideal": IDEAL}, "units"))
    assert list(idle.told) == [f"rank {rank} is idle for 27.3% of the time" for rank in range(4)]


def test_activations_are_stacked_as_they_are_held() -> None:
    figure = pipeline_figure({"ideal": IDEAL}, "units")
    plots = figure.columns[0].axes[1:]
    assert [axes.right[0][1] for axes in plots] == ["at most 4", "at most 3", "at most 2", "at most 1"]
    for rank, axes in enumerate(plots):
        (stack,) = axes.marks
        assert isinstance(stack, Stack)
        assert tuple(zip(stack.edges, stack.tops[0], strict=False)) == IDEAL.held(rank)


def test_numbers_stand_where_they_fit() -> None:
    def written(run: Timeline) -> int:
        marks = pipeline_figure({"ideal": run}).columns[0].axes[0].marks
        return sum(len(mark.text) for mark in marks if isinstance(mark, Labels))

    assert written(IDEAL) == 64
    assert written(simulated(schedule("1F1B", 4, 256))) == 0


def test_runs_stand_above_each_other_on_one_axis() -> None:
    slow = simulated(schedule("1F1B", 4, 8), Times(stages={2: 1.5}))
    figure = pipeline_figure({"ideal": IDEAL, "measured": slow})
    first, second, *activations = figure.columns[0].axes
    assert first.x is second.x and first.x.high >= slow.seconds > IDEAL.seconds
    assert first.subtitle == "ideal: idle 27.3% of the time" and second.subtitle.startswith("measured: idle ")
    assert [axes.bare for axes in (first, second, *activations)] == [True] * 5 + [False]


def test_large_worlds_are_drawn_and_told_in_short() -> None:
    figure = pipeline_figure({"ideal": simulated(schedule("1F1B", 64, 128))})
    assert len(figure.columns[0].axes) == 1 and figure.height < 500
    assert figure.said[0].endswith("activations held at most: 64 on the rank that holds most")


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ({}, "there is nothing to draw"),
        ({"a": IDEAL, "b": simulated(schedule("GPipe", 2, 8))}, "runs on 2 and 4 ranks do not stand above each other"),
    ],
)
def test_what_cannot_be_drawn_is_refused(runs: dict[str, Timeline], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        pipeline_figure(runs)
