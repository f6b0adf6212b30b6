"""Stages of a flow chart as SVG: a column for each, a row for each rank; carries its own colours."""

from __future__ import annotations

from collections.abc import Sequence

from kit.views.markup import escape
from kit.views.palette import UNKNOWN, rank_color, text_on

Column = tuple[str, str, bool, Sequence[str]]  # (title, 'each', 'one' or 'all', in hand, what stands in its boxes)
GREY = UNKNOWN
_FILL = "#e7e9ec"
_LETTER, _ROW, _HIGH, _TOP, _GAP, _EDGE, _RANK = 6.4, 34, 24, 26, 30, 4, 48  # px
_TITLE, _MARK = 6.2, 14  # px of a bold character of a title, and of the mark before it
_MOST = 832  # px
_FAINT = 0.45


def stages_svg(world: int, columns: Sequence[Column], rows: Sequence[Sequence[int]], text: str, some: bool) -> str:
    """The drawing. rows: for each column the ranks of its boxes. some: something is in hand, and the rest faint."""
    wide = [_width(title, labels) for title, _, _, labels in columns]
    gap = min(_GAP, (_MOST - _RANK - _EDGE - sum(wide)) / max(1, len(columns) - 1))
    left = [_RANK + sum(wide[:i]) + gap * i for i in range(len(columns))]
    width, height = round(left[-1] + wide[-1] + _EDGE), _TOP + world * _ROW + 4
    parts = [_rank(rank) for rank in range(world)]
    for i in range(1, len(columns)):
        alpha = 1.0 if not some or columns[i][2] else _FAINT
        parts += _arrows(
            columns[i - 1], columns[i], left[i - 1] + wide[i - 1], left[i], rows[i - 1], rows[i], world, alpha
        )
    for (title, kind, now, labels), x, w, own in zip(columns, left, wide, rows, strict=True):
        mark = "▶ " if now else ""
        parts.append(_text(x + w / 2, 14, mark + title, weight="bold" if now else "normal"))
        for rank, label in zip(own, labels, strict=True):
            y = _middle(kind, rank, world)
            fill = _FILL if kind == "all" else rank_color(rank)
            rim = GREY if now or kind == "all" else fill
            faint = some and not now  # an outline with its text
            parts.append(
                f'<rect x="{x:.1f}" y="{y - _HIGH / 2:.1f}" width="{w:.1f}" height="{_HIGH}" '
                f'rx="{12 if kind == "all" else 4}" fill="{fill}" fill-opacity="{0.12 if faint else 1}" '
                f'stroke="{rim}" stroke-width="{3 if now else 1}"/>'
            )
            parts.append(_text(x + w / 2, y + 4, label, fill=GREY if faint else text_on(fill), size=11))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(text)}" font-family="system-ui, DejaVu Sans, sans-serif">'
        f"<title>{escape(text)}</title>{''.join(parts)}</svg>"
    )


def _width(title: str, labels: Sequence[str]) -> float:
    """The same whether the column is in hand or not, so that nothing moves."""
    return max(46.0, *(14 + _LETTER * len(label) for label in labels), _MARK + _TITLE * len(title))


def _middle(kind: str, rank: int, world: int) -> float:
    """The height of a box's middle: its rank's row, or the middle of all."""
    return _TOP + (world * _ROW / 2 if kind == "all" else rank * _ROW + _ROW / 2)


def _rank(rank: int) -> str:
    y = _TOP + rank * _ROW + _ROW / 2
    return _text(2, y + 4, f"rank {rank}", anchor="start")


def _arrows(
    before: Column,
    after: Column,
    x1: float,
    x2: float,
    sources: Sequence[int],
    targets: Sequence[int],
    world: int,
    alpha: float,
) -> list[str]:
    if len(sources) == len(targets):
        pairs = list(zip(sources, targets, strict=True))
    else:
        pairs = [(a, b) for a in sources for b in targets]
    parts = []
    for a, b in pairs:
        y1, y2 = _middle(before[1], a, world), _middle(after[1], b, world)
        color = rank_color(a) if before[1] != "all" else rank_color(b) if after[1] != "all" else GREY
        parts.append(_line(x1 + 3, y1, x2 - 2, y2, color, alpha))
    return parts


def _line(x1: float, y1: float, x2: float, y2: float, color: str, alpha: float) -> str:
    """A curve that leaves and arrives level, with its own head."""
    tip = x2 - 6
    bend = (tip - x1) * 0.5
    return (
        f'<g opacity="{alpha}"><path d="M{x1:.1f} {y1:.1f} C{x1 + bend:.1f} {y1:.1f} {tip - bend:.1f} {y2:.1f} '
        f'{tip:.1f} {y2:.1f}" fill="none" stroke="{color}" stroke-width="1.6"/>'
        f'<path d="M{x2:.1f} {y2:.1f} l-7 -3.5 v7 z" fill="{color}"/></g>'
    )


def _text(
    x: float, y: float, text: str, fill: str = GREY, weight: str = "normal", size: float = 10, anchor: str = "middle"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size:g}" font-weight="{weight}" '
        f'fill="{fill}">{escape(text)}</text>'
    )
