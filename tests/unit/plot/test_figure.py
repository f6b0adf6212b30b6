"""What holds of every figure: its parts, its height, and that both ways of drawing it draw all of it."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from kit.plot.figure import HEADING, Axis, Boxes, Dots, Figure, Labels, Line, Segments, Stack, values
from kit.plot.palette import paint, role_class
from kit.plot.render_bokeh import BokehFigure
from kit.plot.render_svg import FINE, html, standalone, svg
from kit.plot.style import stylesheet
from kit.plot.timeline import timeline_figure
from tests.traces import example
from tests.unit.plot.gallery import FIGURES
from tests.unit.plot.markup import classes, find, parse, tag, text

EVERY = pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)
COLUMNS = {Boxes: ("left", "right", "top", "bottom"), Segments: ("x0", "y0", "x1", "y1"), Dots: ("x", "y")}


def marks(figure: Figure) -> list[Any]:
    return [mark for _, axes in figure.axes() for mark in axes.marks]


def plots(layout: Any) -> list[Any]:
    from bokeh.models import Plot

    found = [plot for plot in layout.select({"type": Plot}) if plot.name != "lockstep-key"]
    return sorted(found, key=lambda plot: int(plot.name.split()[1]))


@cache
def drawn(name: str) -> Any:
    """A figure of the gallery in Bokeh: for looking at, not to be changed."""
    return BokehFigure(FIGURES[name], dark=False).layout


def many(count: int) -> Boxes:
    """One row of narrow boxes from 0 to 1."""
    edges = np.linspace(0, 1, count + 1)
    zero = np.zeros(count)
    return Boxes(edges[:-1], edges[1:], zero, zero + 10, zero.astype(int), ("compute",), ["told"] * count)


# ------------------------------------------------------------------------------------------ the description


@EVERY
def test_every_item_of_a_mark_has_its_words_and_a_colour(figure: Figure) -> None:
    for mark in marks(figure):
        for role in getattr(mark, "kinds", None) or (mark.role,):
            assert paint(role)
        if isinstance(mark, (Boxes, Dots)):
            assert len(mark.told) == len(getattr(mark, COLUMNS[type(mark)][0])) and all(mark.told)
        if isinstance(mark, Stack):
            assert mark.tops.shape == (len(mark.kinds), len(mark.told)) and len(mark.edges) == len(mark.told) + 1


@EVERY
def test_everything_lies_within_its_axes(figure: Figure) -> None:
    for _, axes in figure.axes():
        for mark in axes.marks:
            for name in COLUMNS.get(type(mark), ("edges",) if isinstance(mark, Stack) else ("x", "y")):
                axis = axes.x if name in ("left", "right", "x", "x0", "x1", "edges") else axes.y
                shares = axis.share(getattr(mark, name))
                assert np.all((shares > -1e-6) & (shares < 1 + 1e-6)), name
        for axis in (axes.x, axes.y):
            assert all(-1e-9 <= axis.share(value) <= 1 + 1e-9 for value, _ in axis.ticks)


def test_a_logarithmic_axis_has_equal_steps_for_equal_factors() -> None:
    axis = Axis(1.0, 1000.0, log=True)
    assert axis.share(values([1, 10, 100, 1000])).tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert Axis(10.0, 0.0).share(2.5) == 0.75, "an axis may count downwards"


def test_a_long_record_stays_a_small_picture_and_wide_boxes_stay() -> None:
    boxes, axis = many(65_000), Axis(0.0, 1.0)
    shown = boxes.take(boxes.visible(axis, 600))
    assert 600 <= len(shown.left) <= 601 and len(shown.told) == len(shown.left)
    wide = replace(boxes, right=np.where(np.arange(65_000) == 40_000, boxes.right + 0.1, boxes.right))
    assert 40_000 in wide.visible(axis, 600)
    few = many(100)
    assert few.take(few.visible(axis, 600)) is few


def test_the_whole_height_counts_heading_drawing_and_words() -> None:
    figure = replace(FIGURES["timeline"], said=("a", "b" * 150), room=0)
    assert figure.whole == HEADING + figure.height + 4 + 3 * 16
    assert replace(figure, room=5).whole == HEADING + figure.height + 4 + 5 * 16


# ------------------------------------------------------------------------------------------ as SVG


@EVERY
def test_an_svg_is_well_formed_of_the_figures_height_and_says_its_words(figure: Figure) -> None:
    drawing = parse(svg(figure))
    assert (drawing.get("width"), drawing.get("height")) == ("100%", str(figure.height))
    assert drawing.get("aria-label") == figure.words.replace("\n", " "), "XML makes blanks of them"
    assert parse(standalone(figure).replace("<style>", "<style><![CDATA[").replace("</style>", "]]></style>"))
    assert f'width="{figure.width}"' in standalone(figure)


@EVERY
def test_an_svg_draws_every_item_with_its_words(figure: Figure) -> None:
    drawing = parse(svg(figure))
    boxes = [mark for mark in marks(figure) if isinstance(mark, Boxes)]
    rects = find(drawing, "ls-box")
    assert [text(rect) for rect in rects] == [told for mark in boxes for told in mark.told]
    roles = [mark.kinds[kind] for mark in boxes for kind in mark.kind]
    assert all(role_class(role) in classes(rect) for role, rect in zip(roles, rects, strict=True))
    dots = [mark for mark in marks(figure) if isinstance(mark, Dots)]
    assert [text(dot) for dot in find(drawing, "ls-dot")] == [told for mark in dots for told in mark.told]
    stacks = [mark for mark in marks(figure) if isinstance(mark, Stack)]
    assert len(find(drawing, "ls-area")) == sum(len(mark.kinds) for mark in stacks)
    written = {text(element) for element in drawing.iter() if tag(element) == "text"}
    for mark in (mark for mark in marks(figure) if isinstance(mark, Labels)):
        assert set(mark.text) <= written


@EVERY
def test_places_in_an_svg_are_shares_of_its_plot(figure: Figure) -> None:
    drawing = parse(svg(figure))
    boxes = [(mark, axes) for _, axes in figure.axes() for mark in axes.marks if isinstance(mark, Boxes)]
    lefts = [float(share) * 100 for mark, axes in boxes for share in axes.x.share(mark.left)]
    assert [float(str(rect.get("x")).rstrip("%")) for rect in find(drawing, "ls-box")] == pytest.approx(lefts, abs=0.01)
    assert not [element for element in find(drawing, "ls-axis") if "%" in str(element.get("font-size"))]


@EVERY
def test_every_class_is_styled_and_every_text_is_large_enough(figure: Figure) -> None:
    sheet = stylesheet()
    for names in re.findall(r'class="([^"]*)"', html(figure)):
        for name in set(names.split()) - {f"ls-{figure.name}", "ls-box", "ls-ghost", "ls-kinds"}:
            assert f".{name}" in sheet, name
    assert min(float(size) for size in re.findall(r"ls-axis \{[^}]*font: (\d+)px", sheet)) >= 10
    assert not re.search(r"font-size", svg(figure))


@EVERY
def test_names_stay_text(figure: Figure) -> None:
    hostile = "<b>'\""
    columns = tuple(
        replace(column, axes=tuple(replace(axes, title=hostile, corner=hostile) for axes in column.axes))
        for column in figure.columns
    )
    drawn = parse(html(replace(figure, title=hostile, words=hostile, said=(hostile,), columns=columns)))
    assert not [element for element in drawn.iter() if tag(element) == "b"] and hostile in text(drawn)


def test_the_heading_holds_title_and_key_and_the_words_stand_below() -> None:
    figure = replace(FIGURES["timeline"], note="a note", said=("one", "two"))
    page = parse(html(figure))
    assert text(find(page, "ls-head")[0]) == "Timea notecomputecommunicatewaitheld"
    assert [line.text for line in find(page, "ls-said")[0]] == ["one", "two"]
    folded = parse(html(replace(figure, folded=("three",))))
    assert [tag(part) for part in find(folded, "ls-said")[0]] == ["details", "div", "div"]


def test_an_svg_draws_no_more_boxes_than_it_has_pixels_for() -> None:
    figure = FIGURES["timeline"]
    (column,) = figure.columns
    axes = replace(column.axes[0], x=Axis(0.0, 1.0), y=Axis(10.0, 0.0), marks=(many(65_000),))
    assert len(find(parse(svg(replace(figure, columns=(replace(column, axes=(axes,)),)))), "ls-box")) <= FINE + 1


# ------------------------------------------------------------------------------------------ in Bokeh


@pytest.mark.parametrize("name", FIGURES)
def test_bokeh_has_every_item_and_the_same_height(name: str) -> None:
    figure, layout = FIGURES[name], drawn(name)
    described = [axes for _, axes in figure.axes()]
    assert [plot.name for plot in plots(layout)] == [f"plot {number}" for number in range(len(described))]
    for plot, axes in zip(plots(layout), described, strict=True):
        assert plot.height == round(axes.whole) and plot.sizing_mode == "stretch_width"
        number = int(plot.name.split()[1])
        for place, mark in enumerate(axes.marks):
            data = layout.select_one({"name": f"data {number} {place} 0"}).data
            for column in COLUMNS.get(type(mark), ()):
                assert np.array_equal(data[column], getattr(mark, column))
            if isinstance(mark, Stack):
                tops = [list(data[f"top {level + 1}"][:-1]) for level in range(len(mark.kinds))]
                assert tops == mark.tops.tolist()
            if isinstance(mark, (Boxes, Dots)):
                assert data["told"] == list(mark.told)
            if isinstance(mark, Labels):
                assert data["text"] == list(mark.text)
            if isinstance(mark, Line):
                assert np.array_equal(data["y"], mark.y)


@pytest.mark.parametrize("name", FIGURES)
def test_pointing_at_a_mark_tells_its_figures(name: str) -> None:
    from bokeh.models import GlyphRenderer, HoverTool

    layout = drawn(name)
    pointed = {
        renderer for plot in plots(layout) for tool in plot.select({"type": HoverTool}) for renderer in tool.renderers
    }
    for plot in plots(layout):
        for renderer in plot.select({"type": GlyphRenderer}):
            if "told" in renderer.data_source.data:
                assert renderer in pointed


@pytest.mark.parametrize("name", FIGURES)
def test_a_name_in_the_key_hides_its_kind_everywhere(name: str) -> None:
    from bokeh.models import Legend

    figure, layout = FIGURES[name], drawn(name)
    legends = list(layout.select({"type": Legend}))
    assert [legend.click_policy for legend in legends] == (["hide"] if figure.key else [])
    for legend in legends:
        assert [(item.name, item.label.value) for item in legend.items] == list(figure.key)
        (hiding,) = legend.js_event_callbacks["legend_item_click"]
        for role, _ in figure.key:
            wanted = [mark for mark in marks(figure) if role in getattr(mark, "kinds", ())]
            drawn_so = hiding.args["drawn"].get(role, [])
            assert len(drawn_so) == len(wanted) and all(renderer.name == role for renderer in drawn_so)


@pytest.mark.parametrize("name", FIGURES)
def test_time_can_be_moved_and_stretched_and_plots_move_together(name: str) -> None:
    from bokeh.models import PanTool, ResetTool, WheelZoomTool

    figure, layout = FIGURES[name], drawn(name)
    by_axis: dict[Axis, set[str]] = {}
    for plot, (_, axes) in zip(plots(layout), figure.axes(), strict=True):
        tools = {type(tool): tool for tool in plot.tools}
        assert ({PanTool, WheelZoomTool, ResetTool} <= tools.keys()) == axes.x.zoom
        if axes.x.zoom:
            assert plot.toolbar.active_drag.dimensions == plot.toolbar.active_scroll.dimensions == "width"
            assert tools[WheelZoomTool].modifiers == {"ctrl": True}, "the wheel alone turns the page"
            assert plot.x_range.bounds == (axes.x.low, axes.x.high)
        by_axis.setdefault(axes.x, set()).add(plot.x_range.id)
    assert all(len(ranges) == 1 for ranges in by_axis.values())


@pytest.mark.parametrize("name", ["timeline", "memory", "scaling"])
def test_bokeh_wears_the_colours_of_the_theme(name: str) -> None:
    for layout, color in (
        (drawn(name), paint("muted").light),
        (BokehFigure(FIGURES[name], dark=True).layout, paint("muted").dark),
    ):
        assert {plot.xaxis[0].major_label_text_color for plot in plots(layout)} == {color}


def test_another_moment_is_shown_in_place_and_the_axis_stays() -> None:
    trace = example.ring(4)
    before, after = timeline_figure(trace, 3), timeline_figure(trace, 20)
    shown = BokehFigure(before, dark=False)
    (plot,) = plots(shown.layout)
    ticker, source = plot.xaxis[0].ticker, shown.parts["data 0 0 0"]
    assert shown.show(after)
    fresh = BokehFigure(after, dark=False).parts["data 0 0 0"]
    assert source.data["told"] == fresh.data["told"] and np.array_equal(source.data["alpha"], fresh.data["alpha"])
    assert plot.xaxis[0].ticker is ticker, "the axis did not change, so nothing is sent for it"


def test_a_step_within_a_record_changes_one_source() -> None:
    from bokeh.document import Document

    trace = example.ring(4)
    before, after = timeline_figure(trace, 3, example.ring(4)), timeline_figure(trace, 4, example.ring(4))
    shown, told = BokehFigure(before, dark=False), []
    document = Document()
    document.add_root(shown.layout)
    document.on_change(told.append)
    assert shown.show(after)
    assert len(told) == 1, "the prediction stays as it is"


def test_a_longer_record_gets_a_longer_axis() -> None:
    before, after = timeline_figure(example.held_ring()), timeline_figure(example.ring(4))
    shown = BokehFigure(before, dark=False)
    assert shown.show(after)
    (plot,) = plots(shown.layout)
    assert plot.x_range.end == after.columns[0].axes[0].x.high
    assert plot.xaxis[0].major_label_overrides == dict(after.columns[0].axes[0].x.ticks)


def test_figures_of_other_parts_are_drawn_anew() -> None:
    one, others = FIGURES["timeline"], [figure for name, figure in FIGURES.items() if name != "timeline"]
    for before, after in [(one, others[1]), *pairwise(others)]:
        shown = BokehFigure(before, dark=False)
        assert not shown.show(after) and shown.figure is before
