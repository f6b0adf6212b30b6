"""Curves of a sweep: what is drawn where, the same in SVG, in Bokeh and in words."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from kit import views
from kit.cost.link import formula_of
from kit.cost.sweep import Row, Sweep
from kit.views.bandwidth import board
from kit.views.palette import COMMUNICATE
from tests.unit.views.markup import find, parse

LINK = (5e-5, 1e9)
NAMES = ("send", "all_reduce", "gather")


def sweep(sizes: tuple[int, ...] = (1200, 120_000, 12_000_000), names: tuple[str, ...] = NAMES) -> Sweep:
    rows = [
        Row(name, 4, size, tuple(formula_of(name)(4, size, *LINK) * f for f in (1.0, 0.8, 2.0)), (1.0,) * 4)
        for name in names
        for size in sizes
    ]
    return Sweep(4, "gloo", ("cpu",) * 4, tuple(rows), 3, 1)


def test_a_row_of_two_charts_for_each_operation() -> None:
    drawing = parse(views.bandwidth_svg(sweep(), link=LINK))
    assert len(find(drawing, "ls-measured")) == len(find(drawing, "ls-spread")) == 3 * 3 * 2
    assert len(find(drawing, "ls-fit")) == len(find(drawing, "ls-predicted")) == 3 * 2
    assert [e.text.split(":")[0] for e in find(drawing, "ls-strong")] == list(NAMES)
    assert not find(parse(views.bandwidth_svg(sweep(), "send")), "ls-predicted")


def test_greater_is_higher_and_the_median_lies_within_its_spread() -> None:
    drawing = parse(views.bandwidth_svg(sweep(), "send"))
    places = [(float(e.get("cx")), float(e.get("cy"))) for e in find(drawing, "ls-measured")]
    time, speed = places[:3], places[3:]
    assert [x for x, _ in time] == sorted(x for x, _ in time)
    for one in (time, speed):
        assert [y for _, y in one] == sorted((y for _, y in one), reverse=True)
    for (x, y), line in zip(places, find(drawing, "ls-spread"), strict=True):
        ends = sorted((float(line.get("y1")), float(line.get("y2"))))
        assert float(line.get("x1")) == x and ends[0] <= y <= ends[1]


def test_everything_lies_inside_the_drawing() -> None:
    markup = views.bandwidth_svg(sweep(), link=(1e-9, 1e15))
    width, height = (int(re.search(f'{side}="(\\d+)"', markup)[1]) for side in ("width", "height"))
    for line in find(parse(markup), "ls-fit") + find(parse(markup), "ls-predicted"):
        for point in line.get("points").split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width and 0 <= y <= height
    for dot in find(parse(markup), "ls-measured"):
        assert 0 <= float(dot.get("cx")) <= width and 0 <= float(dot.get("cy")) <= height


def test_the_fit_of_exact_times_goes_through_every_dot() -> None:
    (curves,) = board(sweep(), "all_reduce").curves
    for dots, line in ((curves.time, curves.fit[0]), (curves.speed, curves.fit[1])):
        assert line[0] == pytest.approx((dots[0].nbytes, dots[0].value))
        assert line[-1] == pytest.approx((dots[-1].nbytes, dots[-1].value))


def test_words_say_what_the_picture_says() -> None:
    words = views.bandwidth_words(sweep(), ["send", "all_reduce"], (5e-5, 2e9))
    send, reduce, told = words.splitlines()
    assert "send: 1.2 kB in 51.2 µs, 12 MB in 12 ms" in send and "fit 50 µs, 1 GB/s" in send
    assert "2 x at the largest" in reduce and "predicted with α = 50 µs, 1/β = 2 GB/s" in told
    assert "predicted" not in views.bandwidth_words(sweep())


def test_one_size_is_drawn_without_a_fit() -> None:
    one = sweep(sizes=(1200,), names=("send",))
    assert "no fit" in views.bandwidth_words(one)
    drawing = parse(views.bandwidth_svg(one, link=LINK))
    assert len(find(drawing, "ls-measured")) == 2 and not find(drawing, "ls-fit")


def test_what_the_sizes_do_not_show_is_said() -> None:
    row = sweep().rows[0]
    flat = replace(sweep(), rows=tuple(replace(row, nbytes=size, times=(1e-4,)) for size in (100, 200, 400)))
    assert "bandwidth does not show" in views.bandwidth_words(flat)
    parse(views.bandwidth_svg(flat))


def test_axes_have_round_marks_six_at_most() -> None:
    shown = board(sweep(sizes=(4, 4_000_000_000)))
    for scale in (shown.size, shown.time, shown.speed):
        marks = scale.marks()
        assert 2 <= len(marks) <= 6
        assert all(scale.low <= value <= scale.high for value, _ in marks)
    assert [label for _, label in board(sweep()).size.marks()] == ["1 kB", "10 kB", "100 kB", "1 MB", "10 MB"]


def test_bokeh_draws_the_same_dots_lines_and_colours() -> None:
    from bokeh.models import GlyphRenderer, HoverTool, LogScale, Plot

    column = views.bandwidth_plot(sweep(), link=LINK, dark=True)
    charts = list(column.select({"type": Plot}))
    assert len(charts) == 6
    shown = board(sweep(), link=LINK)
    for curves in shown.curves:
        chart = next(c for c in charts if c.title.text.startswith(f"{curves.operation}: time"))
        assert isinstance(chart.x_scale, LogScale) and isinstance(chart.y_scale, LogScale)
        drawn = {r.name: r for r in chart.renderers if isinstance(r, GlyphRenderer) and r.name}
        assert drawn.keys() == {"measured", "fit", "predicted"}
        data = drawn["measured"].data_source.data
        assert list(data["value"]) == [dot.value for dot in curves.time]
        assert list(data["told"]) == [dot.told for dot in curves.time]
        assert drawn["measured"].glyph.fill_color == drawn["fit"].glyph.line_color == COMMUNICATE
        assert list(chart.select({"type": HoverTool}))
    light = views.bandwidth_plot(sweep(), dark=False)
    colours = {next(iter(c.select({"type": Plot}))).title.text_color for c in (column, light)}
    assert len(colours) == 2


def test_what_was_not_measured_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="'reduce' was not measured"):
        views.bandwidth_svg(sweep(), "reduce")
    with pytest.raises(ValueError, match="nothing to draw"):
        views.bandwidth_words(replace(sweep(), rows=()))


def test_every_class_is_styled_and_notes_stay_text() -> None:
    sheet = views.stylesheet()
    markup = views.bandwidth_html(sweep(), link=LINK)
    for names in re.findall(r'class="([^"]*)"', markup):
        assert all(f".{name}" in sheet for name in set(names.split()) - {"ls-bandwidth"}), names
    parse(markup)
