"""A figure as SVG: it follows the page's theme, needs no script, and is the still picture of a saved notebook.

Across, places are per cent of the plot, so that a drawing takes the width it is given and its text stays as large.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

import numpy as np

from kit.plot.figure import LETTER, LINE, Axes, Boxes, Column, Dots, Figure, Labels, Line, Mark, Segments, Stack
from kit.plot.markup import escape, heading
from kit.plot.palette import paint, role_class
from kit.plot.style import standalone_style, stylesheet

FINE = 700  # px across that narrow boxes are drawn for
NARROW = 560  # px, the narrowest a figure gets: where a name has room at this width it has room at every one
_LEAST = 0.6  # px of the narrowest box
_SCALE = 1000  # units across of lines and areas, which are stretched to the plot


def svg(figure: Figure, fluid: bool = True) -> str:
    """The drawing, for a page that has the style sheet. It takes the width it is given, or `figure.width` px."""
    wide = "100%" if fluid else str(figure.width)
    drawn = "".join(_column(figure, number) for number in range(len(figure.columns)))
    return (
        f'<svg class="ls ls-figure ls-{figure.name}" width="{wide}" height="{figure.height}" '
        f'xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(figure.words)}">{drawn}</svg>'
    )


def html(figure: Figure) -> str:
    """The drawing under its heading and over its words, for a page that has the style sheet."""
    swatches = [(role_class(role), word) for role, word in figure.key]
    words = "".join(f"<div>{escape(line)}</div>" for line in figure.said)
    if figure.folded:
        folded = "".join(f"<div>{escape(line)}</div>" for line in figure.folded)
        words = f"<details><summary>Every rank in words</summary>{folded}</details>{words}"
    room = f' style="min-height:{LINE * figure.room}px"' if figure.room else ""
    below = f'<div class="ls-said"{room}>{words}</div>' if words else ""
    return f'<div class="ls">{heading(figure.title, figure.note, swatches)}{svg(figure)}{below}</div>'


def page(figure: Figure) -> str:
    """The same with its styles, for a page that has none yet."""
    return f"<style>{stylesheet()}</style>{html(figure)}"


def standalone(figure: Figure) -> str:
    """An SVG of its own: it carries its colours and its paper."""
    opening, rest = svg(figure, fluid=False).split(">", 1)
    return f"{opening}><style>{standalone_style()}</style>{rest}"


def plot_width(figure: Figure, column: Column, width: float | None = None) -> float:
    """px of a column's plots in a figure of that width (its own, unless given)."""
    margins = sum(one.left + one.right for one in figure.columns)
    share = column.share / sum(one.share for one in figure.columns)
    return share * ((figure.width if width is None else width) - margins)


def _column(figure: Figure, number: int) -> str:
    column, before = figure.columns[number], figure.columns[:number]
    margins = sum(one.left + one.right for one in figure.columns)
    whole = sum(one.share for one in figure.columns)
    start, share = sum(one.share for one in before) / whole, column.share / whole
    offset = sum(one.left + one.right for one in before) + column.left
    wide = plot_width(figure, column)
    x = offset + start * (figure.width - margins)
    fluid = (
        f"x:calc({100 * start:.3f}% + {offset - start * margins:.1f}px);"
        f"width:calc({100 * share:.3f}% - {share * margins:.1f}px)"
    )
    tops = accumulate((axes.whole for axes in column.axes), initial=0.0)
    return "".join(
        f'<svg x="{x:.1f}" y="{top + axes.head:.1f}" width="{wide:.1f}" height="{axes.height:.1f}" overflow="visible" '
        f'style="{fluid}">{_Plot(axes, wide, plot_width(figure, column, NARROW)).drawn()}</svg>'
        for top, axes in zip(tops, column.axes, strict=False)
    )


class _Plot:
    """One plot. Where the renderer must know a width, it is `wide` px, and `narrow` px at the least."""

    def __init__(self, axes: Axes, wide: float, narrow: float) -> None:
        self.axes, self.wide, self.narrow = axes, wide, narrow

    def drawn(self) -> str:
        marks = (self.mark(mark) for mark in self.axes.marks)
        return "".join([*self.head(), *self.across(), *self.upward(), *marks, *self.corner()])

    def x(self, value: float) -> str:
        return f"{100 * float(self.axes.x.share(value)):.2f}%"

    def y(self, value: float) -> float:
        return self.axes.height * (1 - float(self.axes.y.share(value)))

    def level(self, value: float) -> str:
        return f"{self.y(value):.1f}"

    def head(self) -> Iterable[str]:
        """The title, then the key of the limits."""
        y = 12 - self.axes.head
        if self.axes.title or self.axes.subtitle:
            title = f'<tspan class="ls-title-of">{escape(self.axes.title)}</tspan>' if self.axes.title else ""
            between = " · " if self.axes.title and self.axes.subtitle else ""
            yield (
                f'<text class="ls-axis ls-left" x="0" y="{y:.1f}">{title}{between}{escape(self.axes.subtitle)}</text>'
            )
        for number, (dash, text) in enumerate(self.axes.limits, 1):
            level = y + 14 * number
            yield _line("ls-stroke ls-ink", 0, level - 3.5, 20, level - 3.5, dash)
            yield _text("ls-axis ls-left", 24, level, text)

    def across(self) -> Iterable[str]:
        axis, bottom = self.axes.x, self.axes.height
        if axis.grid:
            yield from (_line("ls-grid", self.x(value), 0, self.x(value), bottom) for value, _ in axis.ticks)
        if self.axes.bare:
            return
        if axis.ticks or axis.stretches:
            yield _line("ls-grid", 0, bottom, "100%", bottom)
        for value, label in axis.ticks:
            yield _line("ls-grid", self.x(value), bottom, self.x(value), bottom + 4)
            yield _text("ls-axis", self.x(value), bottom + 15, label)
        if axis.label:
            yield _text("ls-axis", "50%", bottom + 29, axis.label)
        for name, start, end in axis.stretches:
            yield _line("ls-stretch", self.x(start), bottom + 3, self.x(end), bottom + 3)
            room = float(axis.share(end) - axis.share(start)) * self.narrow
            text = next((text for text in (name, name[:1]) if len(text) * LETTER < room), "")
            if text:
                yield _text("ls-axis", self.x((start + end) / 2), bottom + 13, text)

    def upward(self) -> Iterable[str]:
        axis = self.axes.y
        for value, label in axis.ticks:
            if axis.grid:
                yield _line("ls-grid", 0, self.level(value), "100%", self.level(value))
            yield _text("ls-axis ls-right", -6, self.y(value) + 3.5, label)
        for value, label in self.axes.right:
            yield _text("ls-axis ls-left", "100%", self.y(value) + 3.5, label, dx=8)

    def corner(self) -> Iterable[str]:
        if self.axes.corner:
            yield _text("ls-axis ls-left ls-over", 5, 11, self.axes.corner)

    def mark(self, mark: Mark) -> str:
        match mark:
            case Boxes():
                return "".join(self.boxes(mark))
            case Stack():
                return self.stretched(self.areas(mark))
            case Line():
                return self.stretched(self.line(mark))
            case Segments():
                kind = f"ls-stroke {role_class(mark.role)}{' ls-weak' if mark.weak else ''}"
                ends = zip(mark.x0.tolist(), mark.y0.tolist(), mark.x1.tolist(), mark.y1.tolist(), strict=True)
                return "".join(_line(kind, self.x(a), self.level(b), self.x(c), self.level(d)) for a, b, c, d in ends)
            case Dots():
                return "".join(
                    f'<circle class="ls-dot {role_class(mark.role)}" cx="{self.x(x)}" cy="{self.level(y)}" r="3.5">'
                    f"<title>{escape(told)}</title></circle>"
                    for x, y, told in zip(mark.x.tolist(), mark.y.tolist(), mark.told, strict=True)
                )
            case Labels():
                return "".join(self.labels(mark))

    def boxes(self, mark: Boxes) -> Iterable[str]:
        mark = mark.take(mark.visible(self.axes.x, FINE))
        classes, clear, ghost = [], [], []
        for role in mark.kinds:
            edge = " ls-dashed" if paint(role).outline else " ls-outline" if mark.outline else ""
            classes.append(f"ls-box {role_class(role)}{edge}")
            clear.append(_opacity(paint(role).alpha))
            ghost.append(_opacity(paint(role).alpha * mark.ghost))
        inset = [0.5 if "ls-dashed" in one or "ls-outline" in one else 0.0 for one in classes]
        starts, ends = 100 * self.axes.x.share(mark.left), 100 * self.axes.x.share(mark.right)
        widths = np.maximum(ends - starts, 100 * _LEAST / self.wide)
        tops, bottoms = (self.axes.height * (1 - self.axes.y.share(one)) for one in (mark.top, mark.bottom))
        faint = np.zeros(len(starts), dtype=bool) if mark.faint is None else mark.faint
        columns = (one.tolist() for one in (starts, widths, tops, bottoms - tops, mark.kind, faint))
        for (x, wide, y, tall, kind, weak), told in zip(zip(*columns, strict=True), mark.told, strict=True):
            edge, opacity = inset[kind], ghost[kind] if weak else clear[kind]
            yield (
                f'<rect class="{classes[kind]}{" ls-ghost" if weak else ""}"{opacity} x="{x:.2f}%" y="{y + edge:.1f}" '
                f'width="{wide:.2f}%" height="{max(0.0, tall - 2 * edge):.1f}"><title>{escape(told)}</title></rect>'
            )

    def areas(self, mark: Stack) -> str:
        """From the bottom to the top of each kind, the uppermost first: those beneath are drawn over it."""
        if not len(mark.told):
            return ""
        edges = (_SCALE * self.axes.x.share(mark.edges)).tolist()
        base = self.level(0)
        paths = []
        for level, kind in reversed(list(enumerate(mark.kinds))):
            heights = (self.axes.height * (1 - self.axes.y.share(mark.tops[level]))).tolist()
            steps = "".join(f"V{y:.1f}H{x:.1f}" for y, x in zip(heights, edges[1:], strict=True))
            told = f"{kind}: {mark.told[int(np.argmax(mark.tops[level]))]}"
            paths.append(
                f'<path class="ls-area {role_class(kind)}" d="M{edges[0]:.1f} {base}{steps}V{base}Z">'
                f"<title>{escape(told)}</title></path>"
            )
        return "".join(paths)

    def line(self, mark: Line) -> str:
        shown = (mark.y >= min(self.axes.y.low, self.axes.y.high)) & (mark.y <= max(self.axes.y.low, self.axes.y.high))
        if shown.sum() < 2:
            return ""
        places = zip((_SCALE * self.axes.x.share(mark.x[shown])).tolist(), mark.y[shown].tolist(), strict=True)
        points = " ".join(f"{x:.1f},{self.level(y)}" for x, y in places)
        kind = f"ls-stroke {role_class(mark.role)}{' ls-weak' if mark.weak else ''}"
        told = f"<title>{escape(mark.told)}</title>" if mark.told else ""
        return f'<polyline class="{kind}"{_dashed(mark.dash)} points="{points}">{told}</polyline>'

    def stretched(self, inside: str) -> str:
        frame = f'viewBox="0 0 {_SCALE} {self.axes.height:.1f}" preserveAspectRatio="none" overflow="visible"'
        return f'<svg width="100%" height="{self.axes.height:.1f}" {frame}>{inside}</svg>' if inside else ""

    def labels(self, mark: Labels) -> Iterable[str]:
        strong = mark.strong or [False] * len(mark.text)
        place = {"start": " ls-left", "middle": ""}[mark.anchor]
        kind = f"ls-axis{place}{' ls-over' if mark.halo else ''}{'' if mark.role == 'muted' else ' ls-told'}"
        for x, y, text, bold in zip(mark.x.tolist(), mark.y.tolist(), mark.text, strong, strict=True):
            classes = f"{kind} {role_class(mark.role)}{' ls-strong' if bold else ''}"
            yield _text(classes, self.x(x), self.y(y) + 3.5, text, mark.dx)


def _line(kind: str, x1: object, y1: object, x2: object, y2: object, dash: tuple[int, ...] = ()) -> str:
    return f'<line class="{kind}"{_dashed(dash)} x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'


def _text(kind: str, x: object, y: float, text: str, dx: float = 0) -> str:
    moved = f' dx="{dx:g}"' if dx else ""
    return f'<text class="{kind}" x="{x}" y="{y:.1f}"{moved}>{escape(text)}</text>'


def _dashed(dash: tuple[int, ...]) -> str:
    return f' stroke-dasharray="{" ".join(map(str, dash))}"' if dash else ""


def _opacity(alpha: float) -> str:
    return f' opacity="{alpha:g}"' if alpha < 1 else ""
