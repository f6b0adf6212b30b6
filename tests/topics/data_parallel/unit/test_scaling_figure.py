"""A scaling curve: what there is to draw, and the same in words."""

from __future__ import annotations

import pytest

from kit.plot.figure import DASHED, DOTTED, SOLID, Axes, Dots, Figure, Line, Segments
from kit.topics.data_parallel.figures import scaling_figure
from kit.topics.data_parallel.panels import scaling_panel
from kit.topics.data_parallel.scaling import Point, Scaling
from tests.topics.data_parallel.unit.test_scaling import STRONG, WEAK, predicted

PREDICTED = predicted()


def charts(figure: Figure) -> tuple[Axes, Axes]:
    """Tokens per second, and efficiency."""
    speed, efficiency = (column.axes[0] for column in figure.columns)
    return speed, efficiency


def dots(axes: Axes) -> Dots:
    (found,) = (mark for mark in axes.marks if isinstance(mark, Dots))
    return found


def line(axes: Axes, dash: tuple[int, ...]) -> list[tuple[float, float]]:
    found = next(mark for mark in axes.marks if isinstance(mark, Line) and mark.dash == dash)
    return list(zip(found.x.tolist(), found.y.tolist(), strict=True))


def test_two_charts_of_the_same_ranks() -> None:
    speed, efficiency = charts(scaling_figure(WEAK, PREDICTED))
    assert dots(speed).y.tolist() == [1000, 1600, 1600] and dots(efficiency).y.tolist() == [1.0, 0.8, 0.4]
    assert speed.x == efficiency.x and [label for _, label in speed.x.ticks] == ["1", "2", "4", "8"]
    shares = speed.x.share(dots(speed).x).tolist()
    assert shares[1] - shares[0] == pytest.approx(shares[2] - shares[1]), "doubling is a step"
    (spread,) = (mark for mark in speed.marks if isinstance(mark, Segments))
    assert spread.y0[2] == 1000 and spread.y1[2] == pytest.approx(4000 / 2.4)
    assert line(speed, SOLID) == list(zip(dots(speed).x, dots(speed).y, strict=True))
    assert not [mark for mark in charts(scaling_figure(WEAK))[0].marks if getattr(mark, "dash", "") == DOTTED]


def test_a_prediction_is_drawn_over_it() -> None:
    speed, efficiency = charts(scaling_figure(WEAK, PREDICTED))
    assert line(speed, DOTTED) == [(p.ranks, p.tokens_per_second) for p in PREDICTED.points]
    assert line(efficiency, DOTTED) == [(p.ranks, PREDICTED.efficiency(p)) for p in PREDICTED.points]
    with pytest.raises(ValueError, match="a strong curve cannot be laid over a weak one"):
        scaling_figure(WEAK, STRONG)


def test_one_number_of_ranks_stands_in_the_middle() -> None:
    for axes in charts(scaling_figure(Scaling("strong", (Point(3, 10, (1.0,)),)))):
        assert axes.x.share(dots(axes).x).tolist() == pytest.approx([0.5])


def test_the_most_that_the_machine_allows_is_drawn() -> None:
    speed, efficiency = charts(scaling_figure(WEAK))
    assert line(speed, DASHED) == [(1, 1000), (2, 2000), (4, 2000)]
    assert line(efficiency, DASHED) == [(1, 1.0), (2, 1.0), (4, 0.5)]
    assert line(charts(scaling_figure(STRONG))[0], DASHED) == [(1, 1000), (4, 4000)]


def test_axes_begin_at_nothing_and_have_few_round_marks() -> None:
    for tokens in (7, 1000, 1234, 99_999, 5_000_000):
        curve = Scaling("weak", (Point(1, tokens, (1.0,)), Point(2, 2 * tokens, (1.0,))))
        axis = charts(scaling_figure(curve))[0].y
        values = [value for value, _ in axis.ticks]
        assert values[0] == axis.low == 0 and 3 <= len(values) <= 7 and values[-1] == axis.high >= 2 * tokens
        assert len({label for _, label in axis.ticks}) == len(values)


def test_the_axis_of_efficiency_has_marks_up_to_its_top() -> None:
    assert [label for _, label in charts(scaling_figure(WEAK))[1].y.ticks] == ["0 %", "25 %", "50 %", "75 %", "100 %"]
    wild = charts(scaling_figure(Scaling("weak", (Point(1, 1000, (1.0,)), Point(2, 2000, (0.3, 0.6))))))[1].y
    assert [label for _, label in wild.ticks][-1] == "300 %" and len(wild.ticks) == 7
    assert all(value <= wild.high for value, _ in wild.ticks)


def test_words_say_what_the_picture_says() -> None:
    figure = scaling_figure(WEAK, PREDICTED)
    words = figure.words.splitlines()
    assert words[0] == "weak scaling, measured: 1 rank 1,000 tokens/s, efficiency 100%"
    assert words[1] == "2 ranks 1,600 tokens/s, efficiency 80%"
    assert words[3] == WEAK.machine() and figure.said == (WEAK.machine(),)
    assert words[4].startswith("predicted: 1 rank 1,000 tokens/s") and len(words) == 8
    assert dots(charts(figure)[0]).told[1] == "2 ranks 1,600 tokens/s, efficiency 80%"


def test_the_panel_says_the_same() -> None:
    assert scaling_panel(WEAK, PREDICTED).text() == scaling_figure(WEAK, PREDICTED).words
