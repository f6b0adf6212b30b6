"""Bytes every rank sent and received, one block per kind of bytes, because kinds are never mixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kit.trace.facts import Trace
from kit.trace.questions import bytes_received, bytes_sent
from kit.views.markup import escape, heading, rank_class, size_text
from kit.views.palette import rank_color

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure

Kind = Literal["payload", "algorithmic", "wire"]
KINDS: dict[Kind, str] = {
    "wire": "wire bytes: messages as observed",
    "algorithmic": "algorithmic bytes: what the standard algorithm of a collective moves",
    "payload": "payload bytes: tensors handed in",
}
_ROW, _HEAD, _LEFT, _RIGHT = 22, 22, 52, 188  # right: 333.3 MB sent · 333.3 MB received


@dataclass(frozen=True, slots=True)
class Flow:
    """One rank's bytes of one kind."""

    rank: int
    kind: Kind
    sent: float
    received: float


def flows(trace: Trace, kinds: tuple[Kind, ...] | None = None) -> list[Flow]:
    """Bytes by kind and rank. None takes wire and algorithmic bytes as far as the run has any."""
    chosen = kinds if kinds is not None else ("wire", "algorithmic")
    for kind in chosen:
        if kind not in KINDS:
            raise ValueError(f"there is no kind of bytes {kind!r}: choose from {', '.join(KINDS)}")
    found = []
    for kind in chosen:
        block = []
        for rank in range(len(trace.ranks)):
            sent, received = bytes_sent(trace, rank), bytes_received(trace, rank)
            block.append(Flow(rank, kind, float(getattr(sent, kind)), float(getattr(received, kind))))
        if kinds is not None or any(flow.sent or flow.received for flow in block):
            found += block
    return found or [Flow(rank, "wire", 0.0, 0.0) for rank in range(len(trace.ranks))]


def traffic_svg(trace: Trace, kinds: tuple[Kind, ...] | None = None, width: int = 460) -> str:
    """Bars per rank: filled is sent, outlined is received; the sizes stand beside them."""
    found = flows(trace, kinds)
    longest = max([max(flow.sent, flow.received) for flow in found]) or 1.0
    shown = list(dict.fromkeys(flow.kind for flow in found))
    room = width - _LEFT - _RIGHT
    parts, y = [], 0.0
    for kind in shown:
        parts.append(f'<text class="ls-axis ls-left" x="0" y="{y + 13:.0f}">{KINDS[kind]}</text>')
        y += _HEAD
        for flow in (f for f in found if f.kind == kind):
            color = rank_class(flow.rank)
            parts.append(f'<text class="ls-axis ls-right" x="{_LEFT - 8}" y="{y + 13:.0f}">rank {flow.rank}</text>')
            for value, top, style in ((flow.sent, y + 1, "ls-sent"), (flow.received, y + 10, "ls-received")):
                long = max(1.0, value / longest * room) if value else 0.0
                parts.append(
                    f'<rect class="{color} {style}" x="{_LEFT}" y="{top:.0f}" width="{long:.1f}" height="8" rx="2"/>'
                )
            numbers = f"{size_text(flow.sent)} sent · {size_text(flow.received)} received"
            end = _LEFT + max(flow.sent, flow.received) / longest * room + 8
            parts.append(f'<text class="ls-axis ls-left" x="{end:.0f}" y="{y + 13:.0f}">{numbers}</text>')
            y += _ROW
    height = int(y + 4)
    return (
        f'<svg class="ls ls-traffic" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(traffic_words(trace, kinds))}">'
        f"{''.join(parts)}</svg>"
    )


def traffic_html(trace: Trace, kinds: tuple[Kind, ...] | None = None, width: int = 460) -> str:
    """The bars with a heading, for a page that has the style sheet."""
    key = "filled: sent · outlined: received"
    return f'<div class="ls ls-traffic-area">{heading("Bytes per rank", key)}{traffic_svg(trace, kinds, width)}</div>'


def traffic_words(trace: Trace, kinds: tuple[Kind, ...] | None = None) -> str:
    """The bars in words, the kind named first."""
    found = flows(trace, kinds)
    blocks = []
    for kind in dict.fromkeys(flow.kind for flow in found):
        lines = (
            f"rank {flow.rank} sent {size_text(flow.sent)} and received {size_text(flow.received)}"
            for flow in found
            if flow.kind == kind
        )
        blocks.append(f"{KINDS[kind]}: " + ", ".join(lines))
    return "; ".join(blocks)


def traffic_bars(
    trace: Trace, kinds: tuple[Kind, ...] | None = None, dark: bool | None = None, width: int = 460
) -> Figure:
    """The same in Bokeh: filled is sent, outlined is received, a tooltip on each bar."""
    from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, Range1d
    from bokeh.plotting import figure

    from kit.views.bars import round_step
    from kit.views.time_bokeh import text_color

    found = flows(trace, kinds)
    shown = list(dict.fromkeys(flow.kind for flow in found))
    world = len(trace.ranks)
    tops = {kind: -i * (world + 1.2) for i, kind in enumerate(shown)}
    columns: dict[str, list[object]] = {name: [] for name in ("right", "top", "bottom", "color", "alpha", "told")}
    for flow in found:
        top = tops[flow.kind] - flow.rank - 0.1
        for value, offset, alpha, verb in ((flow.sent, 0.0, 1.0, "sent"), (flow.received, 0.4, 0.0, "received")):
            if not value:
                continue  # a bar of no length would still have an edge
            told = f"rank {flow.rank} {verb} {size_text(value)} ({flow.kind})"
            row = (value, top - offset, top - offset - 0.36, rank_color(flow.rank), alpha, told)
            for name, item in zip(columns, row, strict=True):
                columns[name].append(item)
    longest = max([max(flow.sent, flow.received) for flow in found]) or 1.0
    plot = figure(
        width=width,
        height=40 + len(shown) * (world * _ROW + _HEAD),
        tools="",
        toolbar_location=None,
        x_range=Range1d(start=0, end=longest * 1.05),
        y_range=Range1d(start=min(tops.values()) - world - 0.1, end=1.0),
        background_fill_alpha=0,
        border_fill_alpha=0,
        outline_line_color=None,
        name="lockstep-traffic",
    )
    edges: dict[str, Any] = {"left": 0, "right": "right", "top": "top", "bottom": "bottom"}
    colors: dict[str, Any] = {"fill_color": "color", "fill_alpha": "alpha", "line_color": "color"}
    bars = plot.quad(source=ColumnDataSource(columns), **edges, **colors)
    plot.add_tools(HoverTool(renderers=[bars], tooltips="<div>@told</div>"))
    color = text_color(dark)
    names = [KINDS[kind] for kind in shown]
    plot.text(x=[0.0] * len(shown), y=[top + 0.1 for top in tops.values()], text=names, text_color=color,
              text_font_size="10px")  # fmt: skip
    middles: dict[Any, Any] = {top - rank - 0.5: f"rank {rank}" for top in tops.values() for rank in range(world)}
    plot.yaxis.ticker = FixedTicker(ticks=list(middles))
    plot.yaxis.major_label_overrides = middles
    step = round_step(longest, 4)
    marks: dict[Any, Any] = {i * step: size_text(i * step) for i in range(int(longest / step + 1e-9) + 1)}
    plot.xaxis.ticker = FixedTicker(ticks=list(marks))
    plot.xaxis.major_label_overrides = marks
    plot.grid.visible = False
    for axis in (*plot.xaxis, *plot.yaxis):
        axis.major_label_text_color = color
        axis.minor_tick_line_color = None
        axis.axis_line_color = axis.major_tick_line_color = None
    return plot
