"""Scaling curves: efficiency worked out by hand, what cores allow, a prediction, and the three ways of drawing one."""

from __future__ import annotations

import re

import pytest

from kit import views
from kit.cost.scaling import Point, Scaling, predicted_scaling
from kit.views.palette import COMPUTE
from kit.views.scaling import board
from tests.unit.views.markup import find, parse

WEAK = Scaling(
    "weak",
    (Point(1, 1000, (0.9, 1.0, 1.1)), Point(2, 2000, (1.25, 1.25, 1.25)), Point(4, 4000, (2.4, 2.5, 4.0))),
    cores=2,
)
STRONG = Scaling("strong", (Point(1, 1000, (1.0,)), Point(4, 1000, (0.5,))))


def test_efficiency_and_speed_up_by_hand() -> None:
    assert [WEAK.efficiency(point) for point in WEAK.points] == [1.0, 0.8, 0.4]
    assert [WEAK.speedup(point) for point in WEAK.points] == [1.0, 1.6, 1.6]
    assert [STRONG.efficiency(point) for point in STRONG.points] == [1.0, 0.5]
    assert STRONG.speedup(STRONG.points[1]) == 2.0
    later = Scaling("weak", (Point(2, 2000, (1.0,)), Point(4, 4000, (1.25,))))
    assert later.efficiency(later.points[1]) == 0.8, "a curve may begin at more than one rank"


def test_what_the_cores_allow() -> None:
    assert [WEAK.ceiling(ranks) for ranks in (1, 2, 4, 8)] == [1.0, 1.0, 0.5, 0.25]
    assert "2 cores and a rank computes with 1 thread: beyond 2 ranks they share" in WEAK.machine()
    assert "4 ranks can reach an efficiency of 50% at most" in WEAK.machine()
    roomy = Scaling("weak", WEAK.points, cores=8, threads=2)
    assert "8 cores and a rank computes with 2 threads: no two of 4 ranks share one" in roomy.machine()
    tight = Scaling("weak", WEAK.points, cores=4, threads=2)
    assert tight.ceiling(4) == 0.5 and "beyond 2 ranks" in tight.machine()
    assert "accelerators" in STRONG.machine() and STRONG.ceiling(4) == 1.0


def test_more_than_the_cores_allow_is_doubted() -> None:
    points = (Point(1, 1000, (1.0,)), Point(2, 2000, (0.6,)), Point(4, 4000, (1.6,)))
    said = Scaling("weak", points, cores=2).machine()
    assert "50% at most" in said and "More was measured on 2 ranks" in said and said.endswith("Run it again.")
    near = (points[0], Point(2, 2000, (0.9,)), Point(4, 4000, (2.1,)))
    assert "More was measured" not in Scaling("weak", near, cores=2).machine()
    assert "More was measured" not in Scaling("weak", points, cores=2, predicted=True).machine()


def test_the_axis_of_efficiency_has_marks_up_to_its_top() -> None:
    assert [label for _, label in board(WEAK).efficiency.ticks] == ["0 %", "25 %", "50 %", "75 %", "100 %"]
    wild = board(Scaling("weak", (Point(1, 1000, (1.0,)), Point(2, 2000, (0.3, 0.6)))))
    assert [label for _, label in wild.efficiency.ticks][-1] == "300 %" and len(wild.efficiency.ticks) == 7
    assert all(value <= wild.efficiency.top for value, _ in wild.efficiency.ticks)


def test_a_table_in_text_and_html() -> None:
    lines = str(WEAK).splitlines()
    assert lines[0] == "Measured weak scaling: the same batch for each rank"
    assert lines[1].split() == ["ranks", "tokens/step", "step", "tokens/s", "speed-up", "efficiency"]
    assert lines[3].split() == ["2", "2,000", "1.25", "s", "1,600", "1.60", "80%"]
    assert lines[-1] == WEAK.machine()
    markup = WEAK._repr_html_()
    assert markup.count("<tr>") == 4 and "40%" in markup


def test_a_prediction_without_a_network_is_ideal_and_with_cores_is_their_ceiling() -> None:
    free = {"tokens": 1200, "seconds": 0.6, "nbytes": 1e6, "latency": 0.0, "bandwidth": 1e30, "ranks": (1, 2, 4)}
    for mode in ("weak", "strong"):
        ideal = predicted_scaling(**free, mode=mode)
        assert [ideal.efficiency(p) for p in ideal.points] == pytest.approx([1, 1, 1])
        shared = predicted_scaling(**free, mode=mode, cores=2)
        assert [shared.efficiency(p) for p in shared.points] == pytest.approx([1, 1, 0.5])
    assert [p.tokens for p in predicted_scaling(**free, mode="strong").points] == [1200, 1200, 1200]
    assert [p.tokens for p in predicted_scaling(**free, mode="weak").points] == [1200, 2400, 4800]


def test_a_prediction_by_hand() -> None:
    """A step of 0.6 s, 0.4 s of it backward; 100 MB on 1 GB/s, 2 ranks: 0.1 s in one piece, exposed whole."""
    how = {"tokens": 100, "seconds": 0.6, "nbytes": 1e8, "latency": 0.0, "bandwidth": 1e9, "ranks": (1, 2)}
    one = predicted_scaling(**how)
    assert one.points[1].seconds == pytest.approx(0.7) and one.efficiency(one.points[1]) == pytest.approx(6 / 7)
    ten = predicted_scaling(**how, buckets=10)
    assert ten.points[1].seconds == pytest.approx(0.61), "the last bucket alone is exposed"
    slow = predicted_scaling(**{**how, "nbytes": 6e8}, buckets=1000)
    assert slow.points[1].seconds == pytest.approx(0.2 + 0.0004 + 0.6), (
        "the link begins with backward and is busy for 0.6 s"
    )
    strong = predicted_scaling(**how, mode="strong")
    assert strong.points[1].seconds == pytest.approx(0.4) and strong.predicted
    assert "10 buckets" in str(ten) and "Predicted weak scaling" in str(ten)


def test_what_makes_no_sense_is_refused() -> None:
    for points in ((), (Point(2, 1, (1.0,)), Point(1, 1, (1.0,)))):
        with pytest.raises(ValueError, match="fewest first"):
            Scaling("weak", points)
    how = {"tokens": 10, "seconds": 1.0, "nbytes": 1.0, "latency": 0.0, "bandwidth": 1.0}
    with pytest.raises(ValueError, match="10 tokens cannot be shared evenly by 3 ranks"):
        predicted_scaling(**how, ranks=(1, 3), mode="strong")
    with pytest.raises(ValueError, match="1 or more"):
        predicted_scaling(**how, ranks=())
    with pytest.raises(ValueError, match="a strong curve cannot be laid over a weak one"):
        views.scaling_svg(WEAK, STRONG)


def guess() -> Scaling:
    return predicted_scaling(
        tokens=1000, seconds=1.0, nbytes=1e8, ranks=(1, 2, 4, 8), latency=1e-4, bandwidth=1e9, cores=2
    )


def test_two_charts_of_the_same_ranks() -> None:
    markup = views.scaling_svg(WEAK, guess())
    drawing = parse(markup)
    assert len(find(drawing, "ls-measured")) == len(find(drawing, "ls-spread")) == 2 * 3
    assert len(find(drawing, "ls-ideal")) == len(find(drawing, "ls-fit")) == len(find(drawing, "ls-guess")) == 2
    assert not find(parse(views.scaling_svg(WEAK)), "ls-guess")
    speed = [(float(e.get("cx")), float(e.get("cy"))) for e in find(drawing, "ls-measured")][:3]
    assert speed[0][1] > speed[1][1] == speed[2][1], "1,000, then twice 1,600 tokens/s: greater is higher"
    assert speed[1][0] - speed[0][0] == pytest.approx(speed[2][0] - speed[1][0], abs=0.2), "doubling is a step"
    width, height = (int(re.search(f'{side}="(\\d+)"', markup)[1]) for side in ("width", "height"))
    for line in (*find(drawing, "ls-ideal"), *find(drawing, "ls-guess")):
        for point in line.get("points").split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width and 0 <= y <= height


def test_one_number_of_ranks_is_drawn_too() -> None:
    one = Scaling("strong", (Point(3, 10, (1.0,)),))
    assert len(find(parse(views.scaling_svg(one)), "ls-measured")) == 2
    views.scaling_plot(one)


def test_the_most_that_the_machine_allows_is_drawn() -> None:
    assert board(WEAK).speed.ideal == ((1, 1000), (2, 2000), (4, 2000))
    assert board(WEAK).efficiency.ideal == ((1, 1.0), (2, 1.0), (4, 0.5))
    assert board(STRONG).speed.ideal == ((1, 1000), (4, 4000))


def test_axes_begin_at_nothing_and_have_few_round_marks() -> None:
    for tokens in (7, 1000, 1234, 99_999, 5_000_000):
        chart = board(Scaling("weak", (Point(1, tokens, (1.0,)), Point(2, 2 * tokens, (1.0,))))).speed
        values = [value for value, _ in chart.ticks]
        assert values[0] == 0 and 3 <= len(values) <= 7 and values[-1] == chart.top >= 2 * tokens
        assert len({label for _, label in chart.ticks}) == len(values)


def test_words_say_what_the_picture_says() -> None:
    words = views.scaling_words(WEAK, guess()).splitlines()
    assert words[0] == "weak scaling, measured: 1 rank 1,000 tokens/s, efficiency 100%"
    assert words[1] == "2 ranks 1,600 tokens/s, efficiency 80%"
    assert words[3] == WEAK.machine()
    assert words[4].startswith("predicted: 1 rank 1,000 tokens/s") and len(words) == 8
    assert 'aria-label="weak scaling, measured: 1 rank' in views.scaling_svg(WEAK)


def test_bokeh_draws_the_same_dots_and_lines() -> None:
    from bokeh.models import GlyphRenderer, HoverTool, LogScale, Plot

    row = views.scaling_plot(WEAK, guess(), dark=True)
    charts = [chart for chart in row.children if isinstance(chart, Plot)]
    shown = board(WEAK, guess())
    assert [chart.title.text for chart in charts] == [shown.speed.title, shown.efficiency.title]
    for chart, laid_out in zip(charts, (shown.speed, shown.efficiency), strict=True):
        drawn = {r.name: r for r in chart.renderers if isinstance(r, GlyphRenderer) and r.name}
        assert drawn.keys() == {"measured", "line", "ideal", "predicted"}
        data = drawn["measured"].data_source.data
        assert list(data["value"]) == [dot.value for dot in laid_out.dots]
        assert list(drawn["ideal"].data_source.data["y"]) == [value for _, value in laid_out.ideal]
        assert drawn["measured"].glyph.fill_color == COMPUTE and isinstance(chart.x_scale, LogScale)
        assert list(chart.select({"type": HoverTool}))


def test_a_notebook_gets_html_an_svg_and_words() -> None:
    shown = WEAK.plot(guess())
    forms = shown._repr_mimebundle_()
    assert forms.keys() == {"text/html", "image/svg+xml", "text/plain"}
    assert str(shown) == forms["text/plain"] == views.scaling_words(WEAK, guess())
    parse(forms["image/svg+xml"])
    sheet = views.stylesheet()
    for names in re.findall(r'class="([^"]*)"', views.scaling_html(WEAK, guess())):
        assert all(f".{name}" in sheet for name in names.split()), names
    assert sheet.count("<") == 0 and "beyond 2 ranks they share" in forms["text/html"]


@pytest.mark.parametrize("wrong", [{"cores": 0}, {"cores": -1}, {"threads": 0}, {"tokens": float("nan")}], ids=str)
def test_a_prediction_from_nonsense_is_refused(wrong: dict[str, float]) -> None:
    given = {"tokens": 8, "seconds": 1.0, "nbytes": 100, "ranks": [1, 2], "latency": 1e-3, "bandwidth": 1e6, **wrong}
    with pytest.raises(ValueError, match="cores and threads of 1 or more"):
        predicted_scaling(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize("point", [Point(1, 8, ()), Point(1, 8, (0.0,)), Point(1, 0, (1.0,))], ids=str)
def test_a_point_without_tokens_or_times_is_refused(point: Point) -> None:
    with pytest.raises(ValueError, match="every point of a curve has tokens, and the times"):
        Scaling("weak", (point,))
