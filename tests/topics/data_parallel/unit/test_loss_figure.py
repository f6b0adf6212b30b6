"""Losses of several trainings in one chart: cut into equal parts of the text, apart at their ends, well-formed."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from kit.plot.figure import Line
from kit.topics.data_parallel.figures import loss_figure
from kit.topics.data_parallel.figures.losses import Curve, curves_of
from kit.topics.data_parallel.panels import loss_panel

ALONE = [4.0 - step / 120 for step in range(240)]
TOGETHER = [4.0 - step / 60 for step in range(60)]


def test_a_spot_is_the_mean_over_as_much_text_whatever_the_steps() -> None:
    alone, together = curves_of({"alone": ALONE, "together": TOGETHER}, parts=10)
    assert len(alone.spots) == len(together.spots) == 10
    assert alone.spots[0] == pytest.approx(sum(ALONE[:24]) / 24)
    assert together.spots[-1] == pytest.approx(sum(TOGETHER[-6:]) / 6)
    (uneven,) = curves_of({"seven": [7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]}, parts=3)
    assert uneven.spots == (6.5, 4.0, 1.5), "every step is in one part"
    assert [len(curve.spots) for curve in curves_of({"short": [2.0, 1.0], "long": ALONE}, parts=10)] == [2, 2]


def test_what_is_no_number_ends_a_curve() -> None:
    broken, never = curves_of({"broken": [3.0, 2.0, math.nan, 1.0], "never": [math.inf, 1.0, 1.0, 1.0]}, parts=4)
    assert broken == Curve("broken", (3.0, 2.0), 4)
    assert broken.told == "broken: 2.00, then not a number"
    assert never.told == "never: not a number"


def test_the_words_say_where_curves_began_and_ended() -> None:
    losses = {"1 rank": ALONE, "4 ranks": TOGETHER}
    assert loss_panel(losses).text() == loss_figure(losses).words
    assert loss_figure(losses).words.splitlines() == [
        "loss over the text read, means over 1/10 of it",
        "from 3.90, 1 rank: 2.10",
        "from 3.96, 4 ranks: 3.06",
    ]


def test_the_heading_says_what_a_curve_joins() -> None:
    assert "nats for a character, a mean over each 1/10 of the text" in loss_figure({"1 rank": ALONE}).note


def test_names_stand_beside_their_curves_and_never_on_each_other() -> None:
    close = {name: [4.0, 3.0 + nth / 1000] for nth, name in enumerate(("a", "b", "<c>", "d"))}
    ((_, axes),) = loss_figure(close).axes()
    assert [told for _, told in axes.right] == ["a: 3.00", "b: 3.00", "<c>: 3.00", "d: 3.00"]
    levels = sorted(float(axes.y.share(level)) * axes.height for level, _ in axes.right)
    assert all(above - below >= 15 - 1e-9 for below, above in pairwise(levels))
    lines = [mark for mark in axes.marks if isinstance(mark, Line) and mark.role == "ink"]
    curves, samples = lines[0::2], lines[1::2]
    assert len({line.dash for line in curves}) == 4, "each curve has its own, and the sample beside its name the same"
    assert [line.dash for line in curves] == [line.dash for line in samples]
    assert [line.y[0] for line in samples] == [level for level, _ in axes.right]


def test_what_makes_no_chart_is_refused() -> None:
    with pytest.raises(ValueError, match="'one' has fewer than two steps"):
        loss_figure({"one": [1.0]})
    for losses in ({}, {str(number): ALONE for number in range(6)}):
        with pytest.raises(ValueError, match=f"there are {len(losses)}"):
            loss_figure(losses)
