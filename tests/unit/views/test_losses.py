"""Losses of several trainings in one chart: cut into equal parts of the text, apart at their ends, well-formed."""

from __future__ import annotations

import math

import pytest

from kit import views
from kit.views.losses import Curve, curves_of
from tests.unit.views.markup import find, parse

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
    assert broken == Curve("broken", (3.0, 2.0), False)
    assert broken.told == "broken: 2.00, then not a number"
    assert never.told == "never: not a number"


def test_the_words_say_where_curves_began_and_ended() -> None:
    text = str(views.loss_picture({"1 rank": ALONE, "4 ranks": TOGETHER}))
    assert text.splitlines() == [
        "loss over the text read, means over 1/10 of it",
        "from 3.90, 1 rank: 2.10",
        "from 3.96, 4 ranks: 3.06",
    ]


def test_the_heading_says_what_a_curve_joins() -> None:
    assert "nats for a character, a mean over each 1/10 of the text" in views.loss_picture({"1 rank": ALONE}).html


def test_names_stand_beside_their_curves_and_never_on_each_other() -> None:
    close = {name: [4.0, 3.0 + nth / 1000] for nth, name in enumerate(("a", "b", "<c>", "d"))}
    picture = views.loss_picture(close)
    drawn = parse(picture.svg.replace("<style>", "<style><![CDATA[").replace("</style>", "]]></style>"))
    names = find(drawn, "ls-told")
    assert [name.text for name in names] == ["a: 3.00", "b: 3.00", "<c>: 3.00", "d: 3.00"]
    levels = sorted(float(name.get("y", "nan")) for name in names)
    assert all(below - above >= 15 for above, below in zip(levels, levels[1:], strict=False))
    dashes = [line.get("stroke-dasharray", "") for line in find(drawn, "ls-loss")]
    assert len(set(dashes)) == 4, "each curve has its own, and the sample beside its name the same"
    assert sorted(dashes[0::2]) == sorted(dashes[1::2])


def test_what_makes_no_chart_is_refused() -> None:
    with pytest.raises(ValueError, match="'one' has fewer than two steps"):
        views.loss_picture({"one": [1.0]})
    for losses in ({}, {str(number): ALONE for number in range(6)}):
        with pytest.raises(ValueError, match=f"there are {len(losses)}"):
            views.loss_picture(losses)
