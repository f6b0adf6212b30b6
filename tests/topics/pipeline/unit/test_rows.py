"""Rows as a person writes them become a schedule, or a sentence; and the chart of a pipeline."""

from __future__ import annotations

from typing import Any

import pytest

from kit.plan.families import schedule
from kit.topics.pipeline import back_to_back, flaws, from_rows, pipeline_chart, simulated


def test_rows_become_the_schedule_they_spell() -> None:
    made = from_rows([["F0", "F1", "B0", "B1"], ["F0", "B0", "F1", "B1"]], "1F1B")
    assert made == schedule("1F1B", 2, 2)
    assert from_rows([["F0", "I0", "W0"]], micro_batches=2).micro_batches == 2


@pytest.mark.parametrize("family", ["1F1B", "ZBH1", "ZBH2", "DualPipe"])
def test_steps_without_a_barrier_take_what_a_rank_is_busy_and_its_bubble(family: str) -> None:
    """The next step of a rank begins when it is through with this one: ZB-H2 loses its stairs once, not twice."""
    one = schedule(family, 4, 8)
    two = back_to_back(one)
    assert not flaws(two) and two.micro_batches == 16
    for rank in range(4):
        assert two.rows[rank][: len(one.rows[rank])] == one.rows[rank]
        assert list(two.cells(rank))[: len(list(one.cells(rank)))] == list(one.cells(rank))
        assert len(list(two.cells(rank))) == 2 * len(list(one.cells(rank)))
    apart, joined = 2 * simulated(one).seconds, simulated(two).seconds
    assert apart - joined == {"1F1B": 0, "ZBH1": 0, "ZBH2": 3}.get(family, apart - joined)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([["F0"], "F0 B0"], "rank 1's row is 'F0 B0', where a list such as"),
        ([["F0"], None], "rank 1's row is None, where a list such as"),
        ([["F0", "f1"]], "rank 0's row holds 'f1': an action is kind and micro-batch"),
        ([["F0", 1]], "rank 0's row holds 1: an action is kind and micro-batch"),
        ([[], []], "there is no action in it"),
    ],
)
def test_what_is_no_row_is_said(rows: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_rows(rows)


def test_the_chart_has_a_stage_for_each_rank_and_two_ways() -> None:
    chart = pipeline_chart(3)
    assert all(f"rank {rank}: stage {rank}" in chart.script for rank in range(3))
    assert chart.svg.count("<rect") == 6 and "3 ranks" in str(chart)
    assert chart.script.count("a₀") == chart.script.count("g₁") == 1
    with pytest.raises(ValueError, match="1 to 8 ranks, not 9"):
        pipeline_chart(9)
