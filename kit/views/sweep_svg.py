"""A bandwidth sweep as SVG: follows the theme, needs no script, and is the still picture of a saved notebook."""

from __future__ import annotations

from collections.abc import Sequence

from kit.cost.sweep import Pair, Sweep
from kit.views.bandwidth import Board, Curves, Dot, Point, Scale, board
from kit.views.markup import escape, heading

WIDTH = 816
_ROW, _HEAD, _AXIS, _LEFT, _GAP, _RIGHT = 132, 20, 24, 62, 76, 16  # px
_KEY = "dots: median and spread · line: fit of α and β"


def bandwidth_svg(
    sweep: Sweep, operations: str | Sequence[str] | None = None, link: Pair | None = None, width: int = WIDTH
) -> str:
    """Per operation: time on the left, bus bandwidth on the right, over size; all axes logarithmic.

    Dots are medians with the spread of the repetitions, the line is the fit, the dashed one what `link` predicts.
    """
    shown = board(sweep, operations, link)
    wide = (width - _LEFT - _GAP - _RIGHT) / 2
    parts, y = [], 0.0
    for curves in shown.curves:
        parts.append(_row(shown, curves, y, wide))
        y += _HEAD + _ROW + _AXIS
    height = int(y)
    return (
        f'<svg class="ls ls-bandwidth" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(shown.words())}">{"".join(parts)}</svg>'
    )


def bandwidth_html(sweep: Sweep, operations: str | Sequence[str] | None = None, link: Pair | None = None) -> str:
    """The drawing under its heading, for a page that has the style sheet."""
    shown = board(sweep, operations, link)
    key = _KEY + (f" · dashed: predicted with {shown.link}" if shown.link else "")
    return f'<div class="ls">{heading("Bandwidth", key)}{bandwidth_svg(sweep, operations, link)}</div>'


def _row(shown: Board, curves: Curves, y: float, wide: float) -> str:
    left = _Plot(shown.size, shown.time, _LEFT, y + _HEAD, wide)
    right = _Plot(shown.size, shown.speed, _LEFT + wide + _GAP, y + _HEAD, wide)
    title = f"{curves.operation}: time · {curves.fitted}"
    return "".join(
        [
            f'<text class="ls-axis ls-left ls-strong" x="{_LEFT}" y="{y + 13:.0f}">{escape(title)}</text>',
            f'<text class="ls-axis ls-left" x="{right.x0:.0f}" y="{y + 13:.0f}">bus bandwidth</text>',
            left.drawn(curves.time, curves.fit[0], curves.predicted[0]),
            right.drawn(curves.speed, curves.fit[1], curves.predicted[1]),
        ]
    )


class _Plot:
    """Where values lie in one chart."""

    def __init__(self, across: Scale, up: Scale, x0: float, y0: float, wide: float) -> None:
        self.across, self.up, self.x0, self.y0, self.wide = across, up, x0, y0, wide

    def x(self, value: float) -> float:
        return self.x0 + self.across.share(value) * self.wide

    def y(self, value: float) -> float:
        return self.y0 + (1 - self.up.share(value)) * _ROW

    def drawn(self, dots: Sequence[Dot], fit: Sequence[Point], predicted: Sequence[Point]) -> str:
        return self.frame() + self.line(predicted, "ls-predicted") + self.line(fit, "ls-fit") + self.dots(dots)

    def frame(self) -> str:
        bottom, right = self.y0 + _ROW, self.x0 + self.wide
        parts = []
        for value, label in self.up.marks():
            y = self.y(value)
            parts.append(f'<line class="ls-ruler" x1="{self.x0:.1f}" y1="{y:.1f}" x2="{right:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text class="ls-axis ls-right" x="{self.x0 - 6:.1f}" y="{y + 3.5:.1f}">{label}</text>')
        for value, label in self.across.marks():
            x = self.x(value)
            parts.append(f'<line class="ls-tick" x1="{x:.1f}" y1="{bottom}" x2="{x:.1f}" y2="{bottom + 4}"/>')
            parts.append(f'<text class="ls-axis" x="{x:.1f}" y="{bottom + 15:.1f}">{label}</text>')
        return "".join(parts)

    def line(self, points: Sequence[Point], kind: str) -> str:
        inside = [p for p in points if self.up.low <= p[1] <= self.up.high]
        if len(inside) < 2:
            return ""
        path = " ".join(f"{self.x(size):.1f},{self.y(value):.1f}" for size, value in inside)
        return f'<polyline class="{kind}" points="{path}"/>'

    def dots(self, dots: Sequence[Dot]) -> str:
        parts = []
        for dot in dots:
            x, low, high = self.x(dot.nbytes), self.y(dot.low), self.y(dot.high)
            spread = f'<line class="ls-spread" x1="{x:.1f}" y1="{low:.1f}" x2="{x:.1f}" y2="{high:.1f}"/>'
            circle = f'<circle class="ls-measured" cx="{x:.1f}" cy="{self.y(dot.value):.1f}" r="3.5"/>'
            parts.append(f"<g><title>{escape(dot.told)}</title>{spread}{circle}</g>")
        return "".join(parts)
