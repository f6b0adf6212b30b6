"""A bandwidth sweep in Bokeh: the same curves as the SVG, with a tooltip on each dot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kit.cost.sweep import Pair, Sweep
from kit.views.bandwidth import Dot, Point, Scale, board
from kit.views.palette import COMMUNICATE, UNKNOWN
from kit.views.time_bokeh import text_color

if TYPE_CHECKING:
    from bokeh.models import Column
    from bokeh.plotting import figure as Figure

WIDTH, HEIGHT = 400, 176  # px of one chart


def bandwidth_plot(
    sweep: Sweep,
    operations: str | Sequence[str] | None = None,
    link: Pair | None = None,
    dark: bool | None = None,
    width: int = WIDTH,
) -> Column:
    """A row of two figures per operation, time and bus bandwidth over size, logarithmic, each `width` px wide.

    Dots are medians with the spread of the repetitions, the line is the fit, the dashed one what `link` predicts.
    `dark` chooses the colour of text; None suits both themes. Raises ImportError where Bokeh is missing: use
    `bandwidth_svg`.
    """
    from bokeh.layouts import column, row

    shown = board(sweep, operations, link)
    rows = []
    for curves in shown.curves:
        time = _chart(shown.size, shown.time, f"{curves.operation}: time · {curves.fitted}", dark, width)
        speed = _chart(shown.size, shown.speed, f"{curves.operation}: bus bandwidth", dark, width)
        _draw(time, curves.time, curves.fit[0], curves.predicted[0])
        _draw(speed, curves.speed, curves.fit[1], curves.predicted[1])
        rows.append(row([time, speed]))
    return column(rows, name="lockstep-bandwidth")


def _chart(across: Scale, up: Scale, title: str, dark: bool | None, width: int) -> Figure:
    from bokeh.models import FixedTicker, Range1d
    from bokeh.models.annotations import Title
    from bokeh.plotting import figure

    color = text_color(dark)
    plot = figure(
        width=width,
        height=HEIGHT,
        title=Title(text=title, text_color=color, text_font_size="11px"),
        tools="",
        toolbar_location=None,
        x_axis_type="log",
        y_axis_type="log",
        x_range=Range1d(start=across.low, end=across.high),
        y_range=Range1d(start=up.low, end=up.high),
        background_fill_alpha=0,
        border_fill_alpha=0,
        outline_line_color=None,
        name="lockstep-bandwidth-chart",
    )
    for axis, scale in ((plot.xaxis[0], across), (plot.yaxis[0], up)):
        marks: dict[Any, Any] = dict(scale.marks())
        axis.ticker = FixedTicker(ticks=list(marks))
        axis.major_label_overrides = marks
        axis.major_label_text_color = color
        axis.axis_line_color = axis.major_tick_line_color = color
        axis.axis_line_alpha = axis.major_tick_line_alpha = 0.4
        axis.minor_tick_line_color = None
    plot.xgrid.visible = False
    plot.ygrid.grid_line_color, plot.ygrid.grid_line_alpha = color, 0.25
    return plot


def _draw(plot: Figure, dots: Sequence[Dot], fit: Sequence[Point], predicted: Sequence[Point]) -> None:
    from bokeh.models import ColumnDataSource, HoverTool

    for points, style, name in (
        (predicted, {"line_color": UNKNOWN, "line_dash": "dashed"}, "predicted"),
        (fit, {"line_color": COMMUNICATE, "line_alpha": 0.6}, "fit"),
    ):
        if points:
            plot.line([size for size, _ in points], [value for _, value in points], line_width=1.5, name=name, **style)
    source = ColumnDataSource(
        {
            "nbytes": [dot.nbytes for dot in dots],
            "value": [dot.value for dot in dots],
            "low": [dot.low for dot in dots],
            "high": [dot.high for dot in dots],
            "told": [dot.told for dot in dots],
        }
    )
    plot.segment("nbytes", "low", "nbytes", "high", source=source, line_color=COMMUNICATE, line_alpha=0.5)
    drawn = plot.scatter("nbytes", "value", source=source, size=7, color=COMMUNICATE, name="measured")
    plot.add_tools(HoverTool(renderers=[drawn], tooltips="<div>@told</div>"))
