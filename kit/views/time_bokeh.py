"""The timeline in Bokeh: the same bars as the SVG, with a tooltip on each; a panel updates it in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kit.trace.facts import Trace
from kit.views.bars import Bar, Picture, Ticks, picture, tooltip
from kit.views.messages import messages_height
from kit.views.palette import COMMUNICATE, COMPUTE, UNKNOWN

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure

WIDTH = 332
_TEXT: dict[bool | None, str] = {None: UNKNOWN, False: "#59636e", True: "#9198a1"}
_FILLS = {"compute": COMPUTE, "communicate": COMMUNICATE, "wait": UNKNOWN, "held": UNKNOWN}
_FILL_ALPHA = {"compute": 1.0, "communicate": 1.0, "wait": 0.0, "held": 0.35}
_AXIS, _THICKEST = 26, 28  # px: room of the axis, the highest row
_GAP = 1.2  # rows between the blocks, room for the name of the lower one


def timeline_data(trace: Trace, position: int | None = None, predicted: Trace | None = None) -> dict[str, list[Any]]:
    """Columns for one quad glyph: left, right (in the axis' unit), bottom, top (rows from the top, negative), how to
    draw it (fill, fill_alpha, line, line_alpha, dash), and what it is (rank, kind, block, told)."""
    return _data(picture(trace, position, predicted))


def timeline(
    trace: Trace,
    position: int | None = None,
    predicted: Trace | None = None,
    dark: bool | None = None,
    width: int = WIDTH,
    height: int | None = None,
) -> Figure:
    """A figure `width` px wide: compute, communicate, wait (dashed), held per rank, predicted above measured.

    `dark` chooses the colour of text; None suits both themes. `update_timeline` shows another position in place;
    `timeline_words` in kit.views says the same as text. Raises ImportError where Bokeh is missing: use `timeline_svg`.
    """
    from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, Range1d
    from bokeh.plotting import figure

    shown = picture(trace, position, predicted)
    world = shown.world
    rows = _rows(shown)
    lowest = min(rows[block] for block in rows) - world
    high = height or messages_height(world)
    lowest = min(lowest, 1 - (high - _AXIS) / _THICKEST)  # few ranks do not make thick bars
    plot = figure(
        width=width,
        height=high,
        tools="",
        toolbar_location=None,
        x_range=Range1d(start=0, end=1),
        y_range=Range1d(start=lowest - 0.1, end=1.0),
        background_fill_alpha=0,
        border_fill_alpha=0,
        outline_line_color=None,
        min_border=0,
        name="lockstep-timeline",
    )
    source = ColumnDataSource(_data(shown), name="lockstep-spans")
    style: dict[str, Any] = {"fill_color": "fill", "line_color": "line", "line_dash": "dash"}
    style |= {name: name for name in ("fill_alpha", "line_alpha")}
    edges: dict[str, Any] = {"left": "left", "right": "right", "top": "top", "bottom": "bottom"}
    bar = plot.quad(source=source, **edges, **style)
    plot.add_tools(HoverTool(renderers=[bar], tooltips="<div>@told</div>", attachment="above"))
    color = text_color(dark)
    plot.text(x=[0.0] * len(rows), y=[top + 0.05 for top in rows.values()], text=list(rows), text_color=color,
              text_font_size="10px")  # fmt: skip
    middles: dict[Any, Any] = {top - rank - 0.5: str(rank) for top in rows.values() for rank in range(world)}
    plot.yaxis.ticker = FixedTicker(ticks=list(middles))
    plot.yaxis.major_label_overrides = middles
    plot.grid.visible = False
    for axis in (*plot.xaxis, *plot.yaxis):
        axis.major_label_text_color = color
        axis.major_label_text_font_size = "10px"
        axis.axis_line_color = color
        axis.axis_line_alpha = 0.4
        axis.minor_tick_line_color = None
        axis.major_tick_line_color = color
        axis.major_tick_in = 0
    plot.yaxis.axis_line_color = None
    plot.yaxis.major_tick_line_color = None
    _set_axis(plot, shown.axis)
    return plot


def text_color(dark: bool | None) -> str:
    """For text in a figure: Bokeh draws on a canvas, which cannot follow the page's theme by itself."""
    return _TEXT[dark]


def update_timeline(plot: Figure, trace: Trace, position: int | None = None, predicted: Trace | None = None) -> None:
    """Shows another position, or a longer record, in a figure made by `timeline` for as many ranks and blocks."""
    source: Any = plot.select_one({"name": "lockstep-spans"})
    shown = picture(trace, position, predicted)
    source.data = _data(shown)
    _set_axis(plot, shown.axis)


def _set_axis(plot: Figure, axis: Ticks) -> None:
    """Touches the axis only where it changes, so that a step within the record sends nothing more than its bars."""
    from bokeh.models import FixedTicker

    marks: dict[Any, Any] = {seconds / axis.scale: label for seconds, label in axis.marks()}
    if plot.xaxis[0].major_label_overrides != marks:
        end = axis.end / axis.scale
        plot.x_range.update(start=-0.02 * end, end=1.08 * end)  # room for half of the first and last label
        plot.xaxis[0].ticker = FixedTicker(ticks=list(marks))
        plot.xaxis[0].major_label_overrides = marks


_COLUMNS = (
    *("left", "right", "bottom", "top"),
    *("fill", "fill_alpha", "line", "line_alpha", "dash"),
    *("rank", "kind", "block", "told"),
)


def _data(shown: Picture) -> dict[str, list[Any]]:
    rows = _rows(shown)
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for bar in shown.bars:
        for name, value in _columns(bar, rows, shown.axis.scale).items():
            columns[name].append(value)
    return columns


def _rows(shown: Picture) -> dict[str, float]:
    """The top of each block; a rank's row is 1 high, rows go down."""
    return {block: -i * (shown.world + _GAP) for i, block in enumerate(shown.blocks)}


def _columns(bar: Bar, rows: dict[str, float], scale: float) -> dict[str, Any]:
    span = bar.span
    top = rows[bar.block] - span.rank - 0.08
    bottom = top - 0.8
    if span.lane:  # in flight beneath the rank's own work
        bottom, top = bottom - 0.1, bottom + 0.12
    faint = 0.22 if bar.later else 1.0
    return {
        "left": span.start / scale,
        "right": span.end / scale,
        "bottom": bottom,
        "top": top,
        "fill": _FILLS[span.kind],
        "fill_alpha": _FILL_ALPHA[span.kind] * faint,
        "line": UNKNOWN if span.kind == "wait" else _FILLS[span.kind],
        "line_alpha": faint if span.kind == "wait" else 0.0,
        "dash": "dashed" if span.kind == "wait" else "solid",
        "rank": span.rank,
        "kind": span.kind,
        "block": bar.block,
        "told": tooltip(bar),
    }
