"""A flow chart for each collective: what every rank holds before and after, coloured by whose data it is."""

from __future__ import annotations

from kit.views.collectives import COLLECTIVES, Collective, Piece, Row, collective
from kit.views.diagram import Diagram, flow_script, quoted
from kit.views.markup import escape
from kit.views.palette import INK, rank_color, text_on
from kit.views.palette import UNKNOWN as GREY

__all__ = ["COLLECTIVES", "collective_chart"]

_WIDTH, _ROW, _TOP = 520, 34, 26
_BOX, _HUB = 186, 62  # px, half boxes left and right, room of the operation between them
_SUM = "#e7e9ec"  # a sum of all ranks belongs to no rank: a neutral fill


def collective_chart(name: str, ranks: int = 4, root: int = 0) -> Diagram:
    """The chart of a collective over 2 to 8 ranks; `COLLECTIVES` lists the names, `root` is for those that have one.

    Raises ValueError for an unknown name, number of ranks or root.
    """
    shown = collective(name, ranks, root)
    text = _words(shown)
    return Diagram(_script(shown, text), _svg(shown, text), text)


def _words(shown: Collective) -> str:
    def held(rows: tuple[Row, ...]) -> str:
        return ", ".join(f"rank {r} {' '.join(p.label for p in row) or 'nothing'}" for r, row in enumerate(rows))

    if shown.name == "barrier":
        return f"barrier: {shown.sentence}."
    return f"{shown.name}: {shown.sentence}. Before: {held(shown.before)}. After: {held(shown.after)}."


def _script(shown: Collective, text: str) -> str:
    from mermaid.flowchart import Link, Node

    styles, classes = {_BLOCK, _NOTHING}, {"class op block"}
    operation = Node("op", quoted(f"{shown.name} · {shown.hub}"), "stadium-shape")
    left: list[Node] = []
    right: list[Node] = []
    links: list[Link] = []
    for side, rows, nodes in (("b", shown.before, left), ("a", shown.after, right)):
        for rank, row in enumerate(rows):
            inner = []
            for i, piece in enumerate(row):
                key = f"{side}{rank}p{i}"
                style = _style(piece)
                styles.add(style)
                classes.add(f"class {key} {style.split()[1]}")
                inner.append(Node(key, quoted(piece.label)))
            if not row:  # a box without anything in it would be drawn as a node and lose its place among the others
                inner.append(Node(f"{side}{rank}p", "–"))
                classes.add(f"class {side}{rank}p nothing")
            nodes.append(Node(f"{side}{rank}", f"rank {rank}", "round-edge", sub_nodes=inner, direction="TB"))
            classes.add(f"class {side}{rank} block")
    for rank, node in enumerate(left):
        links.append(
            Link(
                node,
                operation,
                "normal" if rank in shown.sources else "hidden",
                head_right=_head(rank in shown.sources),
            )
        )
    for rank, node in enumerate(right):
        links.append(
            Link(
                operation,
                node,
                "normal" if rank in shown.targets else "hidden",
                head_right=_head(rank in shown.targets),
            )
        )
    title = f"{shown.name} over {len(shown.before)} ranks"
    return flow_script([*left, operation, *right], links, "LR", title, text, styles, classes)


_NOTHING = f"classDef nothing fill:none,stroke:none,color:{GREY}"
_BLOCK = f"classDef block fill:none,stroke:{GREY},stroke-width:1px,color:{GREY}"


def _head(drawn: bool) -> str:
    return "arrow" if drawn else "none"  # a hidden link with an arrow head does not parse


def _style(piece: Piece) -> str:
    if len(piece.origins) == 1:
        color = rank_color(piece.origins[0])
        return f"classDef from{piece.origins[0]} fill:{color},stroke:{color},color:{text_on(color)}"
    return f"classDef total fill:{_SUM},stroke:{GREY},color:{INK}"


def _svg(shown: Collective, text: str) -> str:
    """Boxes before at the left, after at the right, the operation between; a drawing of its own, not Mermaid's."""
    n = len(shown.before)
    height = _TOP + n * _ROW + 6
    middle = _TOP + n * _ROW / 2
    parts = [
        _text(_BOX / 2, 14, "before"),
        _text(_WIDTH / 2, 14, shown.name, weight="bold"),
        _text(_WIDTH - _BOX / 2, 14, "after"),
    ]
    centre = _WIDTH / 2
    for rank in range(n):
        y = _TOP + rank * _ROW
        level = y + (_ROW - 6) / 2
        parts += [_box(0, y, rank, shown.before[rank]), _box(_WIDTH - _BOX, y, rank, shown.after[rank])]
        if rank in shown.sources:
            parts.append(_line(_BOX + 3, level, centre - _HUB / 2 - 1, middle, rank_color(rank)))
        if rank in shown.targets:
            only = shown.after[rank][0].origins if shown.after[rank] else ()
            color = rank_color(only[0]) if len(shown.sources) == 1 and only else GREY
            parts.append(_line(centre + _HUB / 2 + 1, middle, _WIDTH - _BOX - 3, level, color))
    parts.append(
        f'<rect x="{centre - _HUB / 2}" y="{middle - 14}" width="{_HUB}" height="28" rx="14" '
        f'fill="{_SUM}" stroke="{GREY}"/>'
    )
    parts.append(_text(centre, middle + 4, shown.hub, fill=INK, size=10 if len(shown.hub) < 11 else 8.5))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(text)}" font-family="system-ui, DejaVu Sans, sans-serif">'
        f"<title>{escape(text)}</title>{''.join(parts)}</svg>"
    )


def _box(x: float, y: float, rank: int, row: Row) -> str:
    color = rank_color(rank)
    high = _ROW - 6
    parts = [
        f'<rect x="{x + 0.5}" y="{y + 0.5}" width="{_BOX - 1}" height="{high - 1}" rx="5" fill="none" stroke="{GREY}" '
        'stroke-opacity=".5"/>',
        f'<circle cx="{x + 15}" cy="{y + high / 2}" r="8.5" fill="{color}"/>',
        _text(x + 15, y + high / 2 + 3.8, str(rank), fill=text_on(color), weight="bold"),
    ]
    room = _BOX - 34
    wide = min(44.0, room / max(1, len(row)) - 3)
    for i, piece in enumerate(row):
        fill = rank_color(piece.origins[0]) if len(piece.origins) == 1 else _SUM
        left = x + 30 + i * (wide + 3)
        parts.append(f'<rect x="{left:.1f}" y="{y + 5}" width="{wide:.1f}" height="{high - 10}" rx="3" fill="{fill}"/>')
        size = min(10.0, wide / (0.62 * len(piece.label)))
        if len(piece.origins) > 1:
            parts += _stripes(piece, left, y + high - 8, wide)
        at = y + high / 2 + 3.4 - (1.5 if len(piece.origins) > 1 else 0)
        parts.append(_text(left + wide / 2, at, piece.label, fill=text_on(fill), size=size))
    return "".join(parts)


def _stripes(piece: Piece, left: float, y: float, wide: float) -> list[str]:
    """A sum carries a thin band with the colours of all it holds."""
    each = wide / len(piece.origins)
    return [
        f'<rect x="{left + i * each:.1f}" y="{y:.1f}" width="{each:.1f}" height="3" fill="{rank_color(origin)}"/>'
        for i, origin in enumerate(piece.origins)
    ]


def _line(x1: float, y1: float, x2: float, y2: float, color: str) -> str:
    """A curve that leaves and arrives level, with its own head."""
    bend = (x2 - x1) * 0.5
    tip = x2 - 6
    return (
        f'<path d="M{x1:.1f} {y1:.1f} C{x1 + bend:.1f} {y1:.1f} {tip - bend:.1f} {y2:.1f} {tip:.1f} {y2:.1f}" '
        f'fill="none" stroke="{color}" stroke-width="1.6"/><path d="M{x2:.1f} {y2:.1f} l-7 -3.5 v7 z" fill="{color}"/>'
    )


def _text(x: float, y: float, text: str, fill: str = GREY, weight: str = "normal", size: float = 10) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" font-size="{size:.1f}" font-weight="{weight}" '
        f'fill="{fill}">{escape(text)}</text>'
    )
