"""A scaling curve in Bokeh: the same charts as the SVG, with a tooltip on each dot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kit.cost.scaling import Scaling
from kit.views.palette import COMPUTE, UNKNOWN
from kit.views.scaling import Board, Chart, board
from kit.views.time_bokeh import text_color

if TYPE_CHECKING:
    from bokeh.models import Row
    from bokeh.plotting import figure as Figure

WIDTH, HEIGHT = 400, 220  # px of one chart


def scaling_plot(
    scaling: Scaling, predicted: Scaling | None = None, dark: bool | None = None, width: int = WIDTH
) -> Row:
    """Two figures, tokens per second and efficiency over ranks, each `width` px wide.

    Dots are medians with the spread of the steps, joined by a line; the grey dashed line is the most that the machine
    allows; the dotted one is what `predicted` says. `dark` chooses the colour of text; None suits both themes. Raises
    ValueError for a prediction of the other mode, ImportError where Bokeh is missing: use `scaling_svg`.
    """
    from bokeh.layouts import row

    shown = board(scaling, predicted)
    return row(
        [_chart(shown, chart, dark, width) for chart in (shown.speed, shown.efficiency)], name="lockstep-scaling"
    )


def _chart(shown: Board, chart: Chart, dark: bool | None, width: int) -> Figure:
    from bokeh.models import FixedTicker, Range1d
    from bokeh.models.annotations import Title
    from bokeh.plotting import figure

    color = text_color(dark)
    low, high = shown.ranks[0], shown.ranks[-1]
    plot = figure(
        width=width,
        height=HEIGHT,
        title=Title(text=chart.title, text_color=color, text_font_size="11px"),
        tools="",
        toolbar_location=None,
        x_axis_type="log",
        x_axis_label="ranks",
        x_range=Range1d(start=low / 1.1, end=high * 1.1),
        y_range=Range1d(start=0, end=chart.top),
        background_fill_alpha=0,
        border_fill_alpha=0,
        outline_line_color=None,
        name="lockstep-scaling-chart",
    )
    across: dict[Any, Any] = {ranks: str(ranks) for ranks in shown.ranks}
    up: dict[Any, Any] = dict(chart.ticks)
    for axis, marks in ((plot.xaxis[0], across), (plot.yaxis[0], up)):
        axis.ticker = FixedTicker(ticks=list(marks))
        axis.major_label_overrides = marks
        axis.major_label_text_color = axis.axis_label_text_color = color
        axis.axis_line_color = axis.major_tick_line_color = color
        axis.axis_line_alpha = axis.major_tick_line_alpha = 0.4
        axis.minor_tick_line_color = None
    plot.xgrid.visible = False
    plot.ygrid.grid_line_color, plot.ygrid.grid_line_alpha = color, 0.25
    _draw(plot, chart)
    return plot


def _draw(plot: Figure, chart: Chart) -> None:
    from bokeh.models import ColumnDataSource, HoverTool

    for spots, style, name in (
        (chart.ideal, {"line_color": UNKNOWN, "line_dash": "dashed"}, "ideal"),
        (chart.predicted, {"line_color": COMPUTE, "line_dash": "dotted"}, "predicted"),
        ([(dot.ranks, dot.value) for dot in chart.dots], {"line_color": COMPUTE, "line_alpha": 0.6}, "line"),
    ):
        if spots:
            plot.line([ranks for ranks, _ in spots], [value for _, value in spots], line_width=1.5, name=name, **style)
    source = ColumnDataSource(
        {
            "ranks": [dot.ranks for dot in chart.dots],
            "value": [dot.value for dot in chart.dots],
            "low": [dot.low for dot in chart.dots],
            "high": [dot.high for dot in chart.dots],
            "told": [dot.told for dot in chart.dots],
        }
    )
    plot.segment("ranks", "low", "ranks", "high", source=source, line_color=COMPUTE, line_alpha=0.5)
    drawn = plot.scatter("ranks", "value", source=source, size=7, color=COMPUTE, name="measured")
    plot.add_tools(HoverTool(renderers=[drawn], tooltips="<div>@told</div>"))
