"""What ranks held in Bokeh: the same areas as the SVG, with a tooltip on each moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kit.trace.holdings import Holdings
from kit.views.holdings import Board, Column, Formula, Panel, board, bytes_text
from kit.views.palette import INK, MEMORY, PAPER, UNKNOWN
from kit.views.time_bokeh import text_color

if TYPE_CHECKING:
    from bokeh.models import Column as Layout
    from bokeh.plotting import figure as Figure

WIDTH = 816
_LEFT, _TALL, _LOW, _LINE, _LETTER = 52, 122, 80, 14, 6  # px
_DASHES = ("dashed", "dotted", "dotdash")


def holdings_plot(
    measured: Holdings | Mapping[str, Holdings],
    formula: Formula | Mapping[str, Formula] | None = None,
    dark: bool | None = None,
    width: int = WIDTH,
) -> Layout:
    """A column of figures for each run, one for each rank, on one axis in bytes; dashed lines are what formulas say.

    `dark` chooses the colour of text; None suits both themes. Raises ImportError where Bokeh is missing: use
    `holdings_svg`.
    """
    from bokeh.layouts import column, row

    shown = board(measured, formula)
    wide = (width - _LEFT) // len(shown.columns)
    stacks = []
    for number, one in enumerate(shown.columns):
        first = number == 0
        stacks.append(column([_figure(shown, one, panel, wide, first, dark) for panel in one.panels]))
    return column([row(stacks)], name="lockstep-holdings")


def _figure(shown: Board, column: Column, panel: Panel, wide: int, first: bool, dark: bool | None) -> Figure:
    from bokeh.models import FixedTicker, Range1d
    from bokeh.models.annotations import Title
    from bokeh.plotting import figure

    color, upper = text_color(dark), panel is column.panels[0]
    named = [f"{name} = {bytes_text(size)}" for name, size in column.lines] if upper else []
    title = "\n".join(
        [" · ".join(part for part in (column.name if upper else "", f"rank {panel.rank}") if part), *named]
    )
    most = max(len(one.lines) for one in shown.columns) if upper else 0
    title += "\n" * (most - len(named))  # panels of one row stand level
    plot = figure(
        width=wide + (_LEFT if first else 0),
        height=(_TALL if shown.rows <= 4 else _LOW) + _LINE * most,
        title=Title(text=title, text_color=color, text_font_size="10px", text_font_style="normal"),
        tools="",
        toolbar_location=None,
        x_range=Range1d(start=0, end=1),
        y_range=Range1d(start=0, end=shown.top),
        background_fill_alpha=0,
        border_fill_alpha=0,
        outline_line_color=None,
        min_border_left=_LEFT if first else 0,
        min_border_right=10,
        name="lockstep-holdings-panel",
    )
    up: dict[Any, Any] = dict(shown.marks)
    across: dict[Any, Any] = {
        (one.start + one.end) / 2: one.name if _LETTER * len(one.name) < wide * (one.end - one.start) else one.name[0]
        for one in panel.passes
    }
    for axis, marks in ((plot.xaxis[0], across), (plot.yaxis[0], up)):
        axis.ticker = FixedTicker(ticks=list(marks))
        axis.major_label_overrides = marks
        axis.major_label_text_color = color
        axis.major_label_text_font_size = "10px"
        axis.axis_line_color = axis.major_tick_line_color = color
        axis.axis_line_alpha = axis.major_tick_line_alpha = 0.4
        axis.minor_tick_line_color = None
        axis.major_tick_in = 0
    plot.yaxis.visible = first
    plot.xgrid.visible = False
    plot.ygrid.grid_line_color, plot.ygrid.grid_line_alpha = color, 0.25
    _draw(plot, shown, column, panel, dark)
    return plot


def _draw(plot: Figure, shown: Board, column: Column, panel: Panel, dark: bool | None) -> None:
    from bokeh.models import ColumnDataSource, HoverTool

    if not panel.moments:
        return
    edges = [moment.start for moment in panel.moments] + [panel.moments[-1].end]
    tops = [*(moment.tops for moment in panel.moments), panel.moments[-1].tops]
    for level, kind in enumerate(shown.kinds):
        below = [top[level - 1] if level else 0 for top in tops]
        plot.varea_step(
            edges, below, [top[level] for top in tops], step_mode="after", fill_color=MEMORY[kind], name=kind
        )
    for stretch in panel.passes:
        plot.segment([stretch.start], [0], [stretch.end], [0], line_color=UNKNOWN, line_width=3, name="pass")
    ink = {None: UNKNOWN, False: INK, True: PAPER}[dark]
    for number, (name, size) in enumerate(column.lines):
        dash = _DASHES[min(number, len(_DASHES) - 1)]
        plot.line([0, 1], [size, size], line_color=ink, line_width=1.5, line_dash=dash, name=f"formula {name}")
    source = ColumnDataSource(
        {
            "left": [moment.start for moment in panel.moments],
            "right": [moment.end for moment in panel.moments],
            "top": [moment.tops[-1] for moment in panel.moments],
            "told": [moment.told for moment in panel.moments],
        }
    )
    unseen = plot.quad("left", "right", "top", 0, source=source, fill_alpha=0, line_alpha=0, name="moments")
    plot.add_tools(HoverTool(renderers=[unseen], tooltips="<div style='max-width:320px'>@told</div>"))
