"""What ranks held as SVG: follows the theme, needs no script, and is the still picture of a saved notebook."""

from __future__ import annotations

from collections.abc import Mapping

from kit.trace.holdings import Holdings
from kit.views.holdings import Board, Column, Formula, Panel, board, bytes_text
from kit.views.markup import escape, heading
from kit.views.palette import MEMORY

WIDTH = 816
_LEFT, _GAP, _RIGHT, _HEAD, _LINE, _PASSES = 52, 14, 4, 20, 14, 18  # px
_DASHES = ("5 4", "1.5 3", "9 3 1.5 3")  # of a first, a second and further formulas
_TALL, _LOW = 104, 62  # px of a panel: up to four ranks, and more
_LETTER = 5.6  # px of a character of the small text


def holdings_svg(
    measured: Holdings | Mapping[str, Holdings],
    formula: Formula | Mapping[str, Formula] | None = None,
    width: int = WIDTH,
) -> str:
    """A column for each run, a panel for each rank, one axis in bytes; dashed lines are what formulas say."""
    return board_svg(board(measured, formula), width)


def board_svg(shown: Board, width: int = WIDTH) -> str:
    """The same of what has been laid out already: columns may have been left out."""
    drawing = _Drawing(shown, width)
    return (
        f'<svg class="ls ls-holdings" viewBox="0 0 {width} {drawing.height}" width="{width}" '
        f'height="{drawing.height}" xmlns="http://www.w3.org/2000/svg" role="img" '
        f'aria-label="{escape(shown.words())}">{drawing.drawn()}</svg>'
    )


def holdings_html(
    measured: Holdings | Mapping[str, Holdings], formula: Formula | Mapping[str, Formula] | None = None
) -> str:
    """The drawing under its heading and over its words, for a page that has the style sheet."""
    shown = board(measured, formula)
    swatches = [(f"ls-memory {memory_class(kind)}", kind) for kind in shown.kinds]
    title = heading("Memory by rank", swatches=swatches)
    words = "".join(f"<div>{escape(line)}</div>" for line in shown.words().splitlines())
    return f'<div class="ls">{title}{holdings_svg(measured, formula)}<div class="ls-said">{words}</div></div>'


def memory_class(kind: str) -> str:
    """The CSS class that brings a kind's colour (`--c`)."""
    assert kind in MEMORY
    return f"ls-{kind.replace(' ', '-')}"


class _Drawing:
    def __init__(self, shown: Board, width: int) -> None:
        self.shown = shown
        self.tall = _TALL if shown.rows <= 4 else _LOW
        self.wide = (width - _LEFT - _RIGHT - _GAP * (len(shown.columns) - 1)) / len(shown.columns)
        self.head = _HEAD + _LINE * max(len(column.lines) for column in shown.columns)
        self.height = self.head + shown.rows * (self.tall + _PASSES)
        self.right = width - _RIGHT

    def drawn(self) -> str:
        return self.axis() + "".join(self.column(number, one) for number, one in enumerate(self.shown.columns))

    def top(self, row: int) -> float:
        return self.head + row * (self.tall + _PASSES)

    def y(self, row: int, nbytes: float) -> float:
        return self.top(row) + self.tall * (1 - nbytes / self.shown.top)

    def axis(self) -> str:
        parts = []
        for row in range(self.shown.rows):
            for nbytes, label in self.shown.marks:
                y = self.y(row, nbytes)
                parts.append(f'<line class="ls-ruler" x1="{_LEFT}" y1="{y:.1f}" x2="{self.right}" y2="{y:.1f}"/>')
                parts.append(f'<text class="ls-axis ls-right" x="{_LEFT - 5}" y="{y + 3.5:.1f}">{label}</text>')
        return "".join(parts)

    def column(self, number: int, column: Column) -> str:
        x = _LEFT + number * (self.wide + _GAP)
        name = f'<text class="ls-axis ls-left ls-strong" x="{x:.1f}" y="12">{escape(column.name)}</text>'
        name += "".join(self.key(x, i, name, size) for i, (name, size) in enumerate(column.lines))
        return name + "".join(self.panel(x, row, panel, column) for row, panel in enumerate(column.panels))

    def panel(self, x: float, row: int, panel: Panel, column: Column) -> str:
        bottom = self.top(row) + self.tall
        parts = [self.area(x, row, panel, level, kind) for level, kind in reversed(list(enumerate(self.shown.kinds)))]
        for i, (name, size) in enumerate(column.lines):
            told = f"<title>{escape(f'{name} = {bytes_text(size)}')}</title>"
            parts.append(self.dashed(x, x + self.wide, self.y(row, size), i, told))
        parts.append(f'<line class="ls-tick" x1="{x:.1f}" y1="{bottom}" x2="{x + self.wide:.1f}" y2="{bottom}"/>')
        parts.append(
            f'<text class="ls-axis ls-left ls-over" x="{x + 5:.1f}" y="{self.top(row) + 11}">rank {panel.rank}</text>'
        )
        for stretch in panel.passes:
            left, right, y = x + stretch.start * self.wide, x + stretch.end * self.wide, bottom + 3
            parts.append(f'<line class="ls-pass" x1="{left + 0.5:.1f}" y1="{y}" x2="{right - 0.5:.1f}" y2="{y}"/>')
            text = next((t for t in (stretch.name, stretch.name[0]) if len(t) * _LETTER < right - left), "")
            if text:
                parts.append(f'<text class="ls-axis" x="{(left + right) / 2:.1f}" y="{bottom + 13}">{text}</text>')
        return "".join(parts)

    def area(self, x: float, row: int, panel: Panel, level: int, kind: str) -> str:
        """From the bottom to the top of a kind: those beneath are drawn over it later."""
        path: list[str] = []
        base = self.y(row, 0)
        for moment in panel.moments:
            if not path:
                path.append(f"M{x + moment.start * self.wide:.1f} {base:.1f}")
            path.append(f"V{self.y(row, moment.tops[level]):.1f}H{x + moment.end * self.wide:.1f}")
        told = max((m for m in panel.moments), key=lambda m: m.tops[level], default=None)
        title = f"<title>{escape(f'{kind}: {told.told}')}</title>" if told else ""
        return f'<path class="ls-memory {memory_class(kind)}" d="{"".join(path)}V{base:.1f}Z">{title}</path>'

    def key(self, x: float, number: int, name: str, size: float) -> str:
        """A formula under the name of its column, after a piece of its line."""
        y = 12 + (number + 1) * _LINE
        text = f'<text class="ls-axis ls-left" x="{x + 24:.1f}" y="{y}">{escape(name)} = {bytes_text(size)}</text>'
        return self.dashed(x, x + 20, y - 3.5, number) + text

    def dashed(self, left: float, right: float, y: float, number: int, told: str = "") -> str:
        dash = _DASHES[min(number, len(_DASHES) - 1)]
        return (
            f'<line class="ls-formula" stroke-dasharray="{dash}" x1="{left:.1f}" y1="{y:.1f}" x2="{right:.1f}" '
            f'y2="{y:.1f}">{told}</line>'
        )
