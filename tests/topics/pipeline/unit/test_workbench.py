"""The schedule bench as labs 06a and 06b hand it out."""

from __future__ import annotations

import pytest

from kit.topics.pipeline import Work, bench, schedule, simulated


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_the_target_of_the_lab_is_there_to_be_reached(ranks: int) -> None:
    desk = bench("1F1B", ranks=ranks, micro_batches=2 * ranks, idle=0.15, held=ranks)
    assert not desk.reached
    desk.load("ZBH1")
    assert desk.reached


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_one_activation_more_gains_a_weight_gradient_where_it_is_short(ranks: int) -> None:
    """As lab 06b nudges: rank 0 goes one forward further ahead, every other rank lets one I more go by."""
    short, zb = Work(weight=0.01), schedule("ZBH1", ranks, 2 * ranks)
    line = simulated(zb, short.times(zb))
    goal = 1 - (1 - line.idle_share) * line.seconds / (line.seconds - 0.01)
    desk = bench(zb, ranks=ranks, micro_batches=2 * ranks, idle=goal, held=ranks + 1, work=short)
    assert not desk.reached

    def bolder_row(r: int, p: int, m: int) -> list[str]:
        ahead, owed = min(m, p - 1 - r + (r == 0)), r + (r > 0)
        row = [f"{r}F{j}" for j in range(ahead)]
        for j in range(m):
            row += [f"{r}F{ahead + j}"] * (ahead + j < m) + [f"{r}I{j}"] + [f"{r}W{j - owed}"] * (j >= owed)
        return row + [f"{r}W{j}" for j in range(max(0, m - owed), m)]

    desk.make(bolder_row)
    assert desk.reached, desk.text()
