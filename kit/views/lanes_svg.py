"""Overlap as SVG: follows the theme, needs no script, and is the still picture of a saved notebook."""

from __future__ import annotations

from collections.abc import Mapping

from kit.views.markup import escape, heading
from kit.views.overlap import Bar, Board, Lanes, Measured, Row, board

WIDTH = 816
_LEFT, _RIGHT, _AXIS = 46, 96, 20  # px: names of ranks, numbers, the axis
_NAME, _UPPER, _LOWER, _PITCH, _BETWEEN = 18, 13, 10, 31, 8  # px: a row's name, the two lanes, a rank, two rows
_SAID = 3  # settings whose words stand open under the picture
_LETTER = 5.6  # px of a character of the small text
_KEY = (("ls-compute", "compute"), ("ls-communicate", "communication, hidden"), ("ls-exposed", "exposed"),
        ("ls-wait", "wait for a late rank"))  # fmt: skip


def overlap_svg(measured: Measured | Mapping[str, Measured], step: int = -1, width: int = WIDTH) -> str:
    """A row for each setting, in it two lanes for each rank: what it computed, what was under way.

    What computing did not hide has its own colour, and its length in ms and per cent at the right. A thin line before
    an operation: it was issued and waited for its turn on the link.
    """
    shown = board(measured, step)
    drawing = _Drawing(shown, width)
    return (
        f'<svg class="ls ls-overlap" viewBox="0 0 {width} {drawing.height}" width="{width}" '
        f'height="{drawing.height}" xmlns="http://www.w3.org/2000/svg" role="img" '
        f'aria-label="{escape(shown.words())}">{drawing.drawn()}</svg>'
    )


def overlap_html(measured: Measured | Mapping[str, Measured], step: int = -1) -> str:
    """The drawing under its heading and over its words, folded where many; for a page that has the style sheet."""
    shown = board(measured, step)
    *told, link = (f"<div>{escape(line)}</div>" for line in shown.words().splitlines())
    words = "".join(told)
    if len(told) > _SAID:  # the picture has these numbers too
        words = f"<details><summary>Every rank in words</summary>{words}</details>"
    title = heading(shown.title, swatches=_KEY)
    return f'<div class="ls">{title}{overlap_svg(measured, step)}<div class="ls-said">{words}{link}</div></div>'


class _Drawing:
    def __init__(self, shown: Board, width: int) -> None:
        self.shown = shown
        self.wide = width - _LEFT - _RIGHT
        self.tops: list[int] = []
        y = 0
        for row in shown.rows:
            self.tops.append(y)
            y += _NAME + _PITCH * len(row.lanes) + _BETWEEN
        self.bottom = y
        self.height = y + _AXIS

    def x(self, seconds: float) -> float:
        return _LEFT + seconds / self.shown.seconds * self.wide

    def drawn(self) -> str:
        rows = "".join(self.row(top, row) for top, row in zip(self.tops, self.shown.rows, strict=True))
        return self.axis() + rows

    def axis(self) -> str:
        parts = []
        for seconds, label in self.shown.marks:
            x = self.x(seconds)
            parts.append(f'<line class="ls-ruler" x1="{x:.1f}" y1="{_NAME}" x2="{x:.1f}" y2="{self.bottom + 3}"/>')
            parts.append(f'<text class="ls-axis" x="{x:.1f}" y="{self.bottom + 15}">{label}</text>')
        return "".join(parts)

    def row(self, top: int, row: Row) -> str:
        name = f'<tspan class="ls-axis ls-left ls-strong ls-over">{escape(row.name)}</tspan>'
        name += f"{' · ' if row.name else ''}{escape(row.summary)}"
        lanes = "".join(self.lanes(top + _NAME + i * _PITCH, one) for i, one in enumerate(row.lanes))
        head = f'<text class="ls-axis ls-left" x="{_LEFT + self.wide + 8}" y="{top + 12}">exposed</text>'
        return f'<text class="ls-axis ls-left ls-over" x="0" y="{top + 12}">{name}</text>{head}{lanes}'

    def lanes(self, top: int, one: Lanes) -> str:
        lower = top + _UPPER + 2
        parts = [f'<text class="ls-axis ls-left" x="0" y="{top + 11}">rank {one.rank}</text>']
        parts += [self.bar(bar, top, _UPPER) for bar in one.computing]
        parts += self.passes(top, one)
        for start, end in one.queued:
            y = lower + _LOWER / 2
            parts.append(f'<line class="ls-queued" x1="{self.x(start):.1f}" y1="{y}" x2="{self.x(end):.1f}" y2="{y}"/>')
        parts += [self.bar(bar, lower, _LOWER) for bar in one.moving]
        right = _LEFT + self.wide + 8
        parts.append(f'<text class="ls-axis ls-left" x="{right}" y="{lower + 8.5}">{escape(one.number)}</text>')
        return "".join(parts)

    def bar(self, bar: Bar, top: float, tall: float) -> str:
        left, right = self.x(bar.start), self.x(bar.end)
        inset = 0.5 if bar.kind == "wait" else 0.0
        return (
            f'<rect class="ls-{bar.kind}" x="{left + inset:.1f}" y="{top + inset}" '
            f'width="{max(0.6, right - left - 2 * inset):.1f}" height="{tall - 2 * inset}">'
            f"<title>{escape(bar.told)}</title></rect>"
        )

    def passes(self, top: int, one: Lanes) -> list[str]:
        """Where a pass begins, and its name where there is room for it."""
        parts = []
        for name, start, end in one.passes:
            left, right = self.x(start), self.x(end)
            parts.append(f'<line class="ls-begins" x1="{left:.1f}" y1="{top}" x2="{left:.1f}" y2="{top + _UPPER}"/>')
            room = one.room(start, end) / self.shown.seconds * self.wide
            if len(name) * _LETTER + 6 < min(room, right - left):
                parts.append(
                    f'<text class="ls-axis ls-left ls-pass-name" x="{left + 4:.1f}" y="{top + 10}">{name}</text>'
                )
        return parts
