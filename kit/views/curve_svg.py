"""A scaling curve as SVG: follows the theme, needs no script, and is the still picture of a saved notebook."""

from __future__ import annotations

from dataclasses import dataclass

from kit.cost.scaling import Scaling
from kit.views.markup import escape, heading
from kit.views.scaling import Board, Chart, board
from kit.views.style import standalone_style, stylesheet

WIDTH = 816
_CHART, _HEAD, _AXIS, _LEFT, _GAP, _RIGHT = 156, 20, 34, 52, 72, 24  # px
_KEY = "dots: median and spread of the steps · dashed: the most that the machine allows"


def scaling_svg(scaling: Scaling, predicted: Scaling | None = None, width: int = WIDTH) -> str:
    """Tokens per second on the left, efficiency on the right, over ranks.

    Dots are medians with the spread of the steps, joined by a line; the grey dashed line is the most that the machine
    allows. The dotted one is what `predicted` says. Raises ValueError for a prediction of the other mode.
    """
    shown = board(scaling, predicted)
    wide = (width - _LEFT - _GAP - _RIGHT) / 2
    height = _HEAD + _CHART + _AXIS
    drawn = _drawn(shown, shown.speed, _LEFT, wide) + _drawn(shown, shown.efficiency, _LEFT + wide + _GAP, wide)
    return (
        f'<svg class="ls ls-scaling" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(shown.words)}">{drawn}</svg>'
    )


def scaling_html(scaling: Scaling, predicted: Scaling | None = None) -> str:
    """The drawing under its heading, for a page that has the style sheet; below it what the machine allows."""
    title = f"{scaling.mode.capitalize()} scaling"
    key = _KEY + (" · dotted: predicted" if predicted is not None else "")
    drawing = scaling_svg(scaling, predicted)
    return f'<div class="ls">{heading(title, key)}{drawing}<div>{escape(scaling.machine())}</div></div>'


@dataclass(frozen=True, slots=True)
class Picture:
    """What a notebook shows: HTML that follows the theme, an SVG for other viewers, words. `str()` is the words."""

    html: str
    svg: str  # stands alone: carries its own colours
    text: str

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/html": self.html, "image/svg+xml": self.svg, "text/plain": self.text}


def scaling_picture(scaling: Scaling, predicted: Scaling | None = None) -> Picture:
    """The drawing for a page that has no style sheet yet, and its other forms."""
    svg = scaling_svg(scaling, predicted)
    opening, rest = svg.split(">", 1)
    return Picture(
        f"<style>{stylesheet()}</style>{scaling_html(scaling, predicted)}",
        f"{opening}><style>{standalone_style()}</style>{rest}",
        board(scaling, predicted).words,
    )


def _drawn(shown: Board, chart: Chart, x0: float, wide: float) -> str:
    """One chart with its left edge at x0."""
    y0, bottom, right = _HEAD, _HEAD + _CHART, x0 + wide

    def x(ranks: float) -> float:
        return x0 + shown.across(ranks) * wide

    def y(value: float) -> float:
        return y0 + (1 - chart.up(value)) * _CHART

    def line(spots: list[tuple[float, float]], kind: str) -> str:
        path = " ".join(f"{x(ranks):.1f},{y(value):.1f}" for ranks, value in spots)
        return f'<polyline class="{kind}" points="{path}"/>' if len(spots) > 1 else ""

    parts = [f'<text class="ls-axis ls-left ls-strong" x="{x0:.0f}" y="13">{escape(chart.title)}</text>']
    for value, label in chart.ticks:
        parts.append(f'<line class="ls-ruler" x1="{x0:.1f}" y1="{y(value):.1f}" x2="{right:.1f}" y2="{y(value):.1f}"/>')
        parts.append(f'<text class="ls-axis ls-right" x="{x0 - 6:.1f}" y="{y(value) + 3.5:.1f}">{escape(label)}</text>')
    for ranks in shown.ranks:
        parts.append(f'<line class="ls-tick" x1="{x(ranks):.1f}" y1="{bottom}" x2="{x(ranks):.1f}" y2="{bottom + 4}"/>')
        parts.append(f'<text class="ls-axis" x="{x(ranks):.1f}" y="{bottom + 15}">{ranks}</text>')
    parts.append(f'<text class="ls-axis" x="{x0 + wide / 2:.1f}" y="{bottom + 29}">ranks</text>')
    parts.append(line(list(chart.ideal), "ls-ideal"))
    parts.append(line(list(chart.predicted), "ls-guess"))
    parts.append(line([(dot.ranks, dot.value) for dot in chart.dots], "ls-fit"))
    for dot in chart.dots:
        spread = (
            f'<line class="ls-spread" x1="{x(dot.ranks):.1f}" y1="{y(dot.low):.1f}" x2="{x(dot.ranks):.1f}" '
            f'y2="{y(dot.high):.1f}"/>'
        )
        circle = f'<circle class="ls-measured" cx="{x(dot.ranks):.1f}" cy="{y(dot.value):.1f}" r="3.5"/>'
        parts.append(f"<g><title>{escape(dot.told)}</title>{spread}{circle}</g>")
    return "".join(parts)
