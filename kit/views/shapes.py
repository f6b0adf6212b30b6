"""SVG pieces: a rank's circle, an arrow with a head of its own size, a label. Colours come from the style sheet."""

from __future__ import annotations

from math import hypot

from kit.trace.facts import RankState
from kit.views.layout import FONT, Arrow, Label, Point
from kit.views.markup import escape, rank_class

_HEAD = 9.0  # px, length of an arrow's head, whatever the line's width


def draw_node(rank: int, at: Point, radius: float, state: RankState | None = None) -> str:
    """A rank; it is drawn as in the source: filled when paused, a ring when it waits, square when held."""
    x, y = at
    kind = rank_class(rank)
    classes = "ls-node " + kind
    if state is not None and state.phase == "waiting":
        classes += " ls-waits"
    elif state is not None and state.phase in ("failed", "dead", "stopped"):
        classes += " ls-out"
    inner = radius - 1.5 if "ls-waits" in classes else radius
    if state is not None and state.held:
        shape = (
            f'<rect x="{x - inner:.1f}" y="{y - inner:.1f}" width="{2 * inner:.1f}" height="{2 * inner:.1f}" rx="4"/>'
        )
    else:
        shape = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{inner:.1f}"/>'
    size = 13 if radius > 12 else 10
    return (
        f'<g class="{classes}">{shape}<text x="{x:.1f}" y="{y + size * 0.36:.1f}" font-size="{size}">{rank}</text></g>'
    )


def draw_arrow(line: Arrow, kind: str, pending: bool = False, told: str = "") -> str:
    """A line and its head; pending ones are dashed. `kind` is the class that brings the colour."""
    (x1, y1), (x2, y2) = line.start, line.end
    length = hypot(x2 - x1, y2 - y1) or 1.0
    ux, uy = (x2 - x1) / length, (y2 - y1) / length
    bx, by = x2 - ux * _HEAD, y2 - uy * _HEAD
    half = _HEAD * 0.5
    head = f"{x2:.1f},{y2:.1f} {bx - uy * half:.1f},{by + ux * half:.1f} {bx + uy * half:.1f},{by - ux * half:.1f}"
    classes = f"ls-arrow {kind}" + (" ls-pending" if pending else "")
    title = f"<title>{escape(told)}</title>" if told else ""
    return (
        f'<g class="{classes}">{title}<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{bx:.1f}" y2="{by:.1f}"/>'
        f'<polygon points="{head}"/></g>'
    )


def draw_label(label: Label) -> str:
    """A label with its middle on its point."""
    x, y = label.at
    return f'<text class="ls-label" x="{x:.1f}" y="{y + FONT * 0.35:.1f}">{escape(label.text)}</text>'
