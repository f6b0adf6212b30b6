"""A figure in Bokeh, where a reader can do more than look: point at a mark for the exact figures, move and stretch
the time axis of all its plots together, hide a kind by its name in the key. Another moment is shown in place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

from kit.plot.figure import (
    HEADING,
    LETTER,
    Axes,
    Axis,
    Boxes,
    Column,
    Dots,
    Figure,
    Labels,
    Line,
    Mark,
    Segments,
    Stack,
)
from kit.plot.palette import paint
from kit.plot.render_svg import NARROW, plot_width

Model: TypeAlias = Any  # Bokeh is imported when something is drawn, and has no types
Data = dict[str, Any]
WEAK = 0.6  # opacity of what is weak, as in the style sheet
_HIDE = "for (const one of drawn[cb_obj.item.name] ?? []) one.visible = !one.visible"
_TOOLTIP = "<div style='max-width:320px'>@told</div>"


class BokehFigure:
    """A figure as a Bokeh `layout`, as wide as its place and as high as the SVG with its heading.

    The key stands in the place of the heading's. `dark` chooses the colours of text and lines, because a canvas cannot
    follow the page's theme by itself. Raises ImportError where Bokeh is missing.
    """

    def __init__(self, figure: Figure, dark: bool) -> None:
        self.figure, self.dark = figure, dark
        self.ranges: dict[tuple[float, ...], Model] = {}
        self.by_role: dict[str, list[Model]] = {}
        self.parts: dict[str, Model] = {}  # what an update may touch, by name: Bokeh's own search looks at every model
        self.layout: Model = self.model()

    def show(self, figure: Figure) -> bool:
        """Shows another figure in place; False, and nothing changed, where its parts differ.

        Only what differs is sent to the page: for a step within a record, one column of data for each plot.
        """
        if not _alike(self.figure, figure):
            return False
        pairs = zip(self.figure.axes(), figure.axes(), strict=True)
        for number, ((column, before), (_, after)) in enumerate(pairs):
            for place, (old, new) in enumerate(zip(before.marks, after.marks, strict=True)):
                for part, (was, data) in enumerate(zip(_data(old), _data(new), strict=True)):
                    if not _same(was, data):
                        self.parts[f"data {number} {place} {part}"].data = data
            if before.x != after.x:
                plot = self.parts[f"plot {number}"]
                plot.x_range.update(start=after.x.low, end=after.x.high, bounds=_bounds(after.x))
                _tick(plot.xaxis[0], _names(figure, figure.columns[column], after))
                if after.x.stretches:
                    self.parts[f"stretches {number}"].data = _stretches(after)
            if _title(before) != _title(after):
                self.parts[f"title {number}"].text = _title(after)
            if before.right != after.right:
                _tick(self.parts[f"words {number}"], after.right)
        self.figure = figure
        return True

    def part(self, name: str, made: Model) -> Model:
        """A model that an update may touch."""
        made.name = name
        self.parts[name] = made
        return made

    def model(self) -> Model:
        from bokeh.layouts import column, row

        plots = iter(range(sum(len(one.axes) for one in self.figure.columns)))
        stacks = [
            column(
                [self.plot(next(plots), axes, one) for axes in one.axes],
                sizing_mode="stretch_width",
                styles={"flex": f"{self.outer(one):.0f} 1 0", "min-width": "0"} if len(self.figure.columns) > 1 else {},
                spacing=0,
            )
            for one in self.figure.columns
        ]
        below = stacks[0] if len(stacks) == 1 else row(stacks, sizing_mode="stretch_width", spacing=0)
        return column(
            [self.legend(), below], sizing_mode="stretch_width", name=f"lockstep-{self.figure.name}", spacing=0
        )

    def outer(self, column: Column) -> float:
        return column.left + plot_width(self.figure, column) + column.right

    def color(self, role: str) -> str:
        return paint(role).on(self.dark)

    def range(self, axis: Axis) -> Model:
        """Equal axes share a range: they move together."""
        from bokeh.models import Range1d

        place = (axis.low, axis.high, axis.log, axis.zoom)
        if place not in self.ranges:
            self.ranges[place] = Range1d(start=axis.low, end=axis.high, bounds=_bounds(axis))
        return self.ranges[place]

    def legend(self) -> Model:
        """The key, in the place of the one in the heading: a click hides a kind in all plots.

        Its items hold nothing but samples: with every change of what an item refers to, Bokeh would make the key anew
        and leave it unpainted.
        """
        from bokeh.models import CustomJS, Range1d
        from bokeh.models.annotations import Legend, LegendItem
        from bokeh.plotting import figure

        frame: Model = figure(
            height=HEADING,
            x_range=Range1d(start=0, end=1),
            y_range=Range1d(start=0, end=1),
            **_BARE,
            name="lockstep-key",
        )
        frame.axis.visible = frame.grid.visible = False
        frame.quad([], [], [], [])  # a plot without anything is taken for a mistake
        items: list[Model] = []
        for role, word in self.figure.key:
            sample = frame.quad([-2], [-1], [-1], [-2], **self.look(role, False))  # out of sight: for the key alone
            items.append(LegendItem(label=word, renderers=[sample], name=role))
        if items:
            key = Legend(
                items=items,
                click_policy="hide",
                orientation="horizontal",
                location="top_right",
                label_text_color=self.color("muted"),
                inactive_fill_color=self.color("paper"),
                **_KEY,
            )
            key.js_on_event("legend_item_click", CustomJS(args={"drawn": self.by_role}, code=_HIDE))
            frame.add_layout(key)
        return frame

    def plot(self, number: int, axes: Axes, column: Column) -> Model:
        from bokeh.plotting import figure

        scales: dict[str, Any] = {
            "x_axis_type": "log" if axes.x.log else "linear",
            "y_axis_type": "log" if axes.y.log else "linear",
        }
        plot = figure(
            height=round(axes.whole),
            x_range=self.range(axes.x),
            y_range=self.range(axes.y),
            min_border_left=round(column.left),
            min_border_right=round(column.right),
            min_border_top=round(axes.head),
            min_border_bottom=round(axes.foot),
            **scales,
            **_BARE,
        )
        self.part(f"plot {number}", plot)
        self.axis(plot.xaxis[0], axes.x, bare=axes.bare)
        self.axis(plot.yaxis[0], axes.y)
        plot.yaxis[0].axis_line_color = plot.yaxis[0].major_tick_line_color = None
        for grid, axis in ((plot.xgrid, axes.x), (plot.ygrid, axes.y)):
            grid.visible, grid.grid_line_color = axis.grid, self.color("ruler")
        self.texts(plot, axes, number)
        for place, mark in enumerate(axes.marks):
            self.mark(plot, axes, mark, f"data {number} {place}")
        self.passes(plot, axes, column, number)
        if axes.x.zoom:
            _tools(plot, shown=number == 0)
        return plot

    def axis(self, drawn: Model, axis: Axis, bare: bool = False) -> None:
        color = self.color("muted")
        drawn.update(
            major_label_text_color=color,
            major_label_text_font_size="10px",
            major_label_standoff=4,
            axis_line_color=self.color("ruler"),
            major_tick_line_color=self.color("ruler"),
            minor_tick_line_color=None,
            major_tick_in=0,
            major_tick_out=4,
            axis_label=axis.label or None,
            axis_label_text_color=color,
            axis_label_text_font_size="10px",
            axis_label_text_font_style="normal",
            axis_label_standoff=2,
        )
        _tick(drawn, axis.ticks)
        drawn.visible = not bare and bool(axis.ticks or axis.stretches)

    def texts(self, plot: Model, axes: Axes, number: int) -> None:
        """The title with the key of its limits, the words at the right, the name in the corner."""
        from bokeh.models import LinearAxis
        from bokeh.models.annotations import Label, Title

        color = self.color("muted")
        title = _title(axes)
        if title.strip():
            above = Title(
                text=title,
                text_color=color,
                text_font_size="10px",
                text_font_style="bold" if axes.title else "normal",
                text_line_height=1.4,
                standoff=2,
            )
            plot.add_layout(self.part(f"title {number}", above), "above")
        if axes.right:
            beside = self.part(f"words {number}", LinearAxis())
            self.axis(beside, Axis(0, 1, axes.right))
            beside.update(axis_line_color=None, major_tick_line_color=None)
            plot.add_layout(beside, "right")
        if axes.corner:
            inside: dict[str, Any] = {"x_units": "screen", "y_units": "screen", "text_font_size": "10px"}
            plot.add_layout(
                Label(x=5, y=round(axes.height) - 16, text=axes.corner, text_color=self.color("ink"), **inside)
            )

    def passes(self, plot: Model, axes: Axes, column: Column, number: int) -> None:
        """Named stretches: a line along the axis, the name in the place of a tick's, as long as it has room."""
        from bokeh.models import ColumnDataSource

        if axes.x.stretches:
            _tick(plot.xaxis[0], _names(self.figure, column, axes))
            source = self.part(f"stretches {number}", ColumnDataSource(_stretches(axes)))
            look = {"line_color": self.color("muted"), "line_width": 3}
            plot.segment("x0", "y", "x1", "y", source=source, name="stretches", **look)

    def look(self, role: str, outline: bool) -> dict[str, Any]:
        """Fill and edge of a box."""
        own = paint(role)
        if not (own.outline or outline):
            return {"fill_color": self.color(role), "fill_alpha": own.alpha, "line_color": None}
        dash = "dashed" if own.outline else "solid"
        return {"fill_color": None, "line_color": self.color(role), "line_alpha": own.alpha, "line_dash": dash}

    def mark(self, plot: Model, axes: Axes, mark: Mark, name: str) -> None:
        from bokeh.models import CDSView, ColumnDataSource, GroupFilter, HoverTool

        sources = [self.part(f"{name} {part}", ColumnDataSource(data)) for part, data in enumerate(_data(mark))]
        source, weak = sources[0], WEAK if getattr(mark, "weak", False) else 1.0
        pointed: list[Model] = []
        look: dict[str, Any]
        match mark:
            case Boxes():
                edges: dict[str, Any] = {side: side for side in ("left", "right", "top", "bottom")}
                for role in mark.kinds:
                    look = self.look(role, mark.outline)
                    look |= {"line_alpha": "alpha"} if look["fill_color"] is None else {"fill_alpha": "alpha"}
                    only = CDSView(filter=GroupFilter(column_name="kind", group=role))
                    drawn = plot.quad(**edges, source=source, view=only, name=role, **look)
                    self.by_role.setdefault(role, []).append(drawn)
                    pointed.append(drawn)
            case Stack():
                for level, kind in enumerate(mark.kinds):
                    between: dict[str, Any] = {"y1": f"top {level}", "y2": f"top {level + 1}", "step_mode": "after"}
                    drawn = plot.varea_step("x", **between, source=source, fill_color=self.color(kind), name=kind)
                    self.by_role.setdefault(kind, []).append(drawn)
                unseen: dict[str, Any] = {"fill_alpha": 0, "line_alpha": 0}
                pointed.append(plot.quad("left", "right", "top", 0, source=sources[1], name="steps", **unseen))
            case Line():
                dash = list(mark.dash) or "solid"
                look = {"line_color": self.color(mark.role), "line_alpha": weak, "line_width": 1.5, "line_dash": dash}
                drawn = plot.line("x", "y", source=source, name="line", **look)
                if mark.told:
                    plot.add_tools(HoverTool(renderers=[drawn], tooltips=f"<div>{_plain(mark.told)}</div>"))
            case Segments():
                ends: dict[str, Any] = {end: end for end in ("x0", "y0", "x1", "y1")}
                look = {"line_color": self.color(mark.role), "line_alpha": weak, "line_width": 1.5}
                plot.segment(**ends, source=source, name="segments", **look)
            case Dots():
                look = {"size": 7, "color": self.color(mark.role)}
                pointed.append(plot.scatter("x", "y", source=source, name="dots", **look))
            case Labels():
                plot.text(
                    "x",
                    "y",
                    "text",
                    source=source,
                    x_offset=mark.dx,
                    text_color=self.color(mark.role),
                    text_font_size="10px",
                    text_font_style="style",
                    text_align={"start": "left", "middle": "center"}[mark.anchor],
                    text_baseline="middle",
                    name="labels",
                )
        if pointed:
            plot.add_tools(HoverTool(renderers=pointed, tooltips=_TOOLTIP, visible=False))


def _alike(one: Figure, other: Figure) -> bool:
    """Whether both have the same plots with marks of the same looks, so that only data, ticks and words differ."""

    def looks(figure: Figure) -> list[object]:
        return [
            (
                *(column, axes.y, axes.whole, axes.height, axes.corner, bool(axes.right), bool(_title(axes).strip())),
                bool(axes.x.stretches),
                [(type(mark), *(getattr(mark, name, "") for name in ("kinds", "role", "dash"))) for mark in axes.marks],
            )
            for column, axes in figure.axes()
        ]

    return one.key == other.key and looks(one) == looks(other)


def _same(one: Data, other: Data) -> bool:
    return all(
        np.array_equal(column, other[name]) if isinstance(column, np.ndarray) else column == other[name]
        for name, column in one.items()
    )


def _data(mark: Mark) -> tuple[Data, ...]:
    """What changes of a mark when it is updated: the columns of its sources."""
    match mark:
        case Boxes():
            faint = np.zeros(len(mark.left)) if mark.faint is None else mark.faint
            kinds = [mark.kinds[kind] for kind in mark.kind.tolist()]
            alphas = np.array([paint(role).alpha for role in mark.kinds])[mark.kind] if len(kinds) else np.zeros(0)
            edges = {name: getattr(mark, name) for name in ("left", "right", "top", "bottom")}
            alphas = alphas * np.where(faint, mark.ghost, 1.0)
            return ({**edges, "kind": kinds, "alpha": alphas, "told": list(mark.told)},)
        case Stack():
            steps = len(mark.told)
            tops = np.vstack([np.zeros(steps), mark.tops]) if steps else np.zeros((len(mark.kinds) + 1, 0))
            levels = {f"top {level}": np.append(row, row[-1:]) for level, row in enumerate(tops)}
            whole = {"left": mark.edges[:-1], "right": mark.edges[1:], "top": tops[-1], "told": list(mark.told)}
            return {"x": mark.edges[: steps + 1] if steps else np.zeros(0), **levels}, whole
        case Line():
            return ({"x": mark.x, "y": mark.y},)
        case Segments():
            return ({name: getattr(mark, name) for name in ("x0", "y0", "x1", "y1")},)
        case Dots():
            return ({"x": mark.x, "y": mark.y, "told": list(mark.told)},)
        case Labels():
            style = ["bold" if strong else "normal" for strong in mark.strong] or ["normal"] * len(mark.text)
            return ({"x": mark.x, "y": mark.y, "text": list(mark.text), "style": style},)


_BARE: dict[str, Any] = {
    "sizing_mode": "stretch_width",
    "min_width": 0,
    "tools": "",
    "toolbar_location": None,
    "background_fill_alpha": 0,
    "border_fill_alpha": 0,
    "outline_line_color": None,
    "min_border": 0,
}


_KEY: dict[str, Any] = {
    "margin": 0,
    "padding": 0,
    "spacing": 9,
    "glyph_width": 9,
    "glyph_height": 9,
    "label_width": 0,
    "label_height": 0,
    "label_standoff": 3,
    "label_text_font_size": "11px",
    "label_text_font_style": "bold",
    "border_line_color": None,
    "background_fill_alpha": 0,
}


def _tools(plot: Model, shown: bool) -> None:
    """Dragging moves the time axis; Ctrl and the wheel stretch it, so that the wheel alone still turns the page."""
    from bokeh.models import PanTool, ResetTool, WheelZoomTool, ZoomInTool, ZoomOutTool

    pan = PanTool(dimensions="width", visible=False)
    wheel = WheelZoomTool(dimensions="width", modifiers={"ctrl": True}, visible=False)
    plot.add_tools(pan, wheel, ZoomInTool(dimensions="width"), ZoomOutTool(dimensions="width"), ResetTool())
    plot.toolbar.update(active_drag=pan, active_scroll=wheel, autohide=True, logo=None)
    if shown:
        plot.update(toolbar_location="above", toolbar_inner=True)


def _tick(axis: Model, ticks: Iterable[tuple[float, str]]) -> None:
    from bokeh.models import FixedTicker

    marks = dict(ticks)
    axis.update(ticker=FixedTicker(ticks=list(marks)), major_label_overrides=marks)


def _bounds(axis: Axis) -> tuple[float, float] | None:
    return (axis.low, axis.high) if axis.zoom else None


def _title(axes: Axes) -> str:
    """The title's lines, with the key of its limits; empty ones keep plots of one row level."""
    title = " · ".join(part for part in (axes.title, axes.subtitle) if part)
    lines = [title, *(text for _, text in axes.limits)]
    return "\n".join(lines + [""] * (round((axes.head - 20) / 14) - len(axes.limits)))


def _names(figure: Figure, column: Column, axes: Axes) -> tuple[tuple[float, str], ...]:
    """What is written along the axis: its ticks, or the names of its stretches where they have room."""
    narrow = plot_width(figure, column, NARROW)
    return axes.x.ticks or tuple(
        ((a + b) / 2, name if LETTER * len(name) < float(axes.x.share(b) - axes.x.share(a)) * narrow else name[:1])
        for name, a, b in axes.x.stretches
    )


def _stretches(axes: Axes) -> Data:
    starts, ends = zip(*((start, end) for _, start, end in axes.x.stretches), strict=True)
    return {"x0": list(starts), "x1": list(ends), "y": [axes.y.low] * len(starts)}


def _plain(text: str) -> str:
    from kit.plot.markup import escape

    return escape(text).replace("@", "&#64;").replace("$", "&#36;")
