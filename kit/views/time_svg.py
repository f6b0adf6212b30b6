"""The timeline as SVG: follows the theme, needs no script, and is the still picture of a saved notebook."""

from __future__ import annotations

from kit.trace.facts import Trace
from kit.views.bars import Bar, Block, Ticks, picture, tooltip
from kit.views.markup import escape, heading
from kit.views.messages import messages_height

WIDTH = 332
_LEFT, _RIGHT, _HEAD, _AXIS = 22, 14, 14, 20  # px: rank numbers, right margin, a block's name, the axis
_KEY = (("ls-compute", "compute"), ("ls-communicate", "communicate"), ("ls-wait", "wait"), ("ls-held", "held"))


def timeline_html(trace: Trace, position: int | None = None, predicted: Trace | None = None) -> str:
    """The area of the panel: a heading with the key, the drawing."""
    return (
        f'<div class="ls ls-time">{heading("Time", swatches=_KEY)}'
        f"{timeline_svg(trace, position, predicted, WIDTH)}</div>"
    )


def timeline_svg(
    trace: Trace,
    position: int | None = None,
    predicted: Trace | None = None,
    width: int = WIDTH,
    height: int | None = None,
) -> str:
    """Compute, communicate, wait (dashed) and held per rank; predicted above measured on one axis.

    What the record holds after `position` is faint. The axis covers the whole record, so nothing moves between
    positions; `height` in px follows from the number of ranks unless it is given.
    """
    high = height or messages_height(len(trace.ranks))
    shown = picture(trace, position, predicted)
    plot = _Plot(shown.world, shown.blocks, shown.axis, width, high)
    drawn = [plot.bar(bar) for bar in shown.bars]
    words = escape(shown.words())
    return (
        f'<svg class="ls ls-timeline" viewBox="0 0 {width} {high}" width="{width}" height="{high}" '
        f'xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{words}">'
        f"{plot.frame()}{''.join(drawn)}</svg>"
    )


class _Plot:
    """Where rows and seconds lie in the drawing."""

    def __init__(self, world: int, rows: tuple[Block, ...], axis: Ticks, width: int, height: int) -> None:
        self.world, self.rows, self.axis = world, rows, axis
        self.width, self.height = width, height
        free = height - _AXIS - _HEAD * len(rows) - 4
        self.pitch = min(22.0, free / (world * len(rows)))
        self.thick = max(1.0, self.pitch - (3 if self.pitch > 6 else 1))

    def x(self, seconds: float) -> float:
        return _LEFT + seconds / self.axis.end * (self.width - _LEFT - _RIGHT)

    def top(self, block: Block) -> float:
        return self.rows.index(block) * (_HEAD + self.pitch * self.world + 4)

    def bar(self, bar: Bar) -> str:
        span = bar.span
        y = self.top(bar.block) + _HEAD + span.rank * self.pitch
        tall = self.thick
        if span.lane:  # in flight beneath the rank's own work
            tall = max(1.5, self.thick / 4)
            y += self.thick - tall * min(span.lane, 3) + 1.5
        left, right = self.x(span.start), self.x(span.end)
        classes = f"ls-{span.kind}" + (" ls-ghost" if bar.later else "")
        inset = 0.5 if span.kind == "wait" else 0.0
        return (
            f'<rect class="{classes}" x="{left + inset:.1f}" y="{y + inset:.1f}" '
            f'width="{max(0.6, right - left - 2 * inset):.1f}" height="{tall - 2 * inset:.1f}" '
            f'rx="{min(2.0, tall / 2):g}">'
            f"<title>{escape(tooltip(bar))}</title></rect>"
        )

    def frame(self) -> str:
        parts = []
        bottom = 0.0
        for block in self.rows:
            top = self.top(block)
            parts.append(f'<text class="ls-axis ls-left" x="{_LEFT}" y="{top + 10:.1f}">{block}</text>')
            every = 1 if self.pitch >= 9 else _power_above(9 / self.pitch)
            for rank in range(0, self.world, every):
                middle = top + _HEAD + rank * self.pitch + self.thick / 2 + 3.5
                parts.append(f'<text class="ls-axis ls-right" x="{_LEFT - 7}" y="{middle:.1f}">{rank}</text>')
            bottom = top + _HEAD + self.world * self.pitch
        level = bottom + 3
        parts.append(_line("ls-ruler", _LEFT, level, self.width - _RIGHT, level))
        marks = self.axis.marks()
        for i, (seconds, label) in enumerate(marks):
            anchor = " ls-right" if i == len(marks) - 1 else " ls-left" if i == 0 else ""
            tick = self.x(seconds)
            parts.append(_line("ls-tick", tick, level, tick, level + 3))
            x = tick + (_RIGHT if i == len(marks) - 1 else 0)
            parts.append(f'<text class="ls-axis{anchor}" x="{x:.1f}" y="{bottom + 16:.1f}">{escape(label)}</text>')
        return "".join(parts)


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _power_above(value: float) -> int:
    """The next of 1, 2, 4, 8, ... that is at least the value."""
    power = 1
    while power < value:
        power *= 2
    return power
