"""Overlap in Bokeh: the same lanes as the SVG, with a tooltip on each bar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kit.views.overlap import Bar, Board, Measured, board
from kit.views.palette import COMMUNICATE, COMPUTE, EXPOSED, INK, PAPER, UNKNOWN, text_on
from kit.views.time_bokeh import text_color

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure

WIDTH = 816
_NAME, _RANK, _BETWEEN, _AXIS = 18, 31, 8, 24  # px, as in the SVG
_INSET = 0.004  # of the axis, from where a pass begins to its name
_SPAN, _LETTER = 1.19, 5.6  # the axis with both margins, over its seconds; px of a character, as in the SVG
_FILLS = {"compute": COMPUTE, "communicate": COMMUNICATE, "exposed": EXPOSED, "wait": UNKNOWN}
_COLUMNS = (
    "left",
    "right",
    "bottom",
    "top",
    "fill",
    "fill_alpha",
    "line",
    "line_alpha",
    "dash",
    "kind",
    "rank",
    "told",
)


def overlap_plot(
    measured: Measured | Mapping[str, Measured], step: int = -1, dark: bool | None = None, width: int = WIDTH
) -> Figure:
    """One figure: a row for each setting, two lanes for each rank, exposed communication in its own colour.

    `dark` chooses the colour of text; None suits both themes. Raises ImportError where Bokeh is missing: use
    `overlap_svg`.
    """
    from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, Range1d
    from bokeh.plotting import figure

    shown = board(measured, step)
    tall = sum(_NAME + _RANK * len(row.lanes) + _BETWEEN for row in shown.rows)
    color = text_color(dark)
    plot = figure(
        width=width,
        height=tall + _AXIS,
        tools="",
        toolbar_location=None,
        x_range=Range1d(start=-0.06 * shown.seconds, end=(_SPAN - 0.06) * shown.seconds),
        y_range=Range1d(start=-tall, end=0),
        background_fill_alpha=0,
        border_fill_alpha=0,
        outline_line_color=None,
        min_border=0,
        name="lockstep-overlap",
    )
    bars, texts, queued, starts = _laid_out(shown, width)
    source = ColumnDataSource({name: [bar[name] for bar in bars] for name in _COLUMNS}, name="lockstep-lanes")
    for x0, y, x1 in queued:
        plot.segment([x0], [y], [x1], [y], line_color=COMMUNICATE, line_width=1.5, name="queued")
    style: dict[str, Any] = {"fill_color": "fill", "line_color": "line", "line_dash": "dash"}
    style |= {name: name for name in ("fill_alpha", "line_alpha")}
    begins = {None: UNKNOWN, False: PAPER, True: INK}[dark]
    drawn = plot.quad(left="left", right="right", bottom="bottom", top="top", source=source, **style)
    plot.add_tools(HoverTool(renderers=[drawn], tooltips="<div>@told</div>"))
    for x, y in starts:
        plot.segment([x], [y - 6.5], [x], [y + 6.5], line_color=begins, line_width=1.5, name="begins")
    for x, y, text, fill, bold in texts:
        font: dict[str, Any] = {"text_font_size": "10px", "text_font_style": "bold" if bold else "normal"}
        plot.text([x], [y], [text], text_color=fill or color, text_baseline="middle", **font)
    marks: dict[Any, Any] = dict(shown.marks)
    axis = plot.xaxis[0]
    axis.ticker = FixedTicker(ticks=list(marks))
    axis.major_label_overrides = marks
    axis.major_label_text_color = color
    axis.major_label_text_font_size = "10px"
    axis.axis_line_color = axis.major_tick_line_color = color
    axis.axis_line_alpha = axis.major_tick_line_alpha = 0.4
    axis.minor_tick_line_color = None
    plot.yaxis.visible = False
    plot.ygrid.visible = False
    plot.xgrid.grid_line_color, plot.xgrid.grid_line_alpha = color, 0.25
    return plot


def _laid_out(
    shown: Board, width: int
) -> tuple[list[dict[str, Any]], list[tuple[Any, ...]], list[tuple[float, float, float]], list[tuple[float, float]]]:
    """Bars as columns of the source; texts (x, y, text, colour or '', bold); lines of what waits for its turn; and
    (x, y) where passes begin, named or not."""
    bars: list[dict[str, Any]] = []
    texts: list[tuple[Any, ...]] = []
    queued: list[tuple[float, float, float]] = []
    starts: list[tuple[float, float]] = []
    y = 0.0
    left, right = -0.055 * shown.seconds, 1.01 * shown.seconds
    for row in shown.rows:
        texts.append((left, y - 9, " · ".join(part for part in (row.name, row.summary) if part), "", True))
        texts.append((right, y - 9, "exposed", "", False))
        y -= _NAME
        for one in row.lanes:
            texts.append((left, y - 7, f"rank {one.rank}", "", False))
            texts.append((right, y - 20, one.number, "", False))
            bars += [_bar(bar, one.rank, y, y - 13) for bar in one.computing]
            bars += [_bar(bar, one.rank, y - 15, y - 25) for bar in one.moving]
            queued += [(start, y - 20, end) for start, end in one.queued]
            for name, start, end in one.passes:
                starts.append((start, y - 6.5))
                if one.room(start, end) / (_SPAN * shown.seconds) * width > len(name) * _LETTER + 6:
                    texts.append((start + _INSET * shown.seconds, y - 6.5, name, text_on(COMPUTE), False))
            y -= _RANK
        y -= _BETWEEN
    return bars, texts, queued, starts


def _bar(bar: Bar, rank: int, top: float, bottom: float) -> dict[str, Any]:
    waits = bar.kind == "wait"
    return {
        "left": bar.start,
        "right": bar.end,
        "bottom": bottom,
        "top": top,
        "fill": _FILLS[bar.kind],
        "fill_alpha": 0.0 if waits else 1.0,
        "line": _FILLS[bar.kind],
        "line_alpha": 1.0 if waits else 0.0,
        "dash": "dashed" if waits else "solid",
        "kind": bar.kind,
        "rank": rank,
        "told": bar.told,
    }
