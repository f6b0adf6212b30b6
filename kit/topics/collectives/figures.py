"""What each collective does: what every rank holds before and after, as data and as a chart by whose data it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kit.plot.diagram import (
    NOBODY,
    NOBODYS_LOOK,
    ON_NOBODY,
    Diagram,
    FlowScript,
    rank_look,
    subscript,
    svg_curve,
    svg_page,
    svg_text,
)
from kit.plot.palette import INK, PAPER, UNKNOWN, rank_color, text_on

if TYPE_CHECKING:
    from mermaid.flowchart import Node

Row = tuple["Piece", ...]

_ROW, _TOP, _EDGE = 34, 30, 8  # px: a rank, the line of headings, around the drawing
_LETTER, _LEAST = 6.6, 44  # px: a letter of a piece, a piece at least
_HUB, _ARROWS = 96, 44  # px: the operation, the arrows on each side of it
_QUIET = "#59636e"  # headings, on paper


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor, or a chunk of one: what it is called and whose data is in it."""

    label: str
    origins: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective over n ranks. An empty row is a rank that holds nothing that matters."""

    name: str
    sentence: str
    does: str  # the word on the operation
    before: tuple[Row, ...]
    after: tuple[Row, ...]
    sources: tuple[int, ...]  # ranks with an arrow into the operation
    targets: tuple[int, ...]  # ranks with an arrow out of it


def collective(name: str, ranks: int, root: int = 0) -> Collective:
    """The collective of that name ('all_reduce', 'all-reduce', 'send/receive') over `ranks` ranks.

    Raises ValueError for an unknown name, fewer than two ranks or more than eight, or a root outside of them.
    """
    key = name.lower().replace("-", "_").replace("/", "_").replace(" ", "_")
    key = {"send_recv": "send_receive", "alltoall": "all_to_all", "allreduce": "all_reduce"}.get(key, key)
    if key not in COLLECTIVES:
        raise ValueError(f"there is no collective {name!r}: choose from {', '.join(COLLECTIVES)}")
    if not 2 <= ranks <= 8:
        raise ValueError(f"a chart shows 2 to 8 ranks, not {ranks}: choose a number between them")
    if not 0 <= root < ranks:
        raise ValueError(f"root {root} is not one of the ranks 0 to {ranks - 1}: choose one of them")
    return next(each for each in _collectives(ranks, root) if each.name == key)


def _collectives(n: int, root: int) -> tuple[Collective, ...]:
    every = tuple(range(n))
    nothing: tuple[Row, ...] = ((),) * n
    x = Piece("x", (root,))
    all_x = tuple(Piece(f"x{subscript(r)}", (r,)) for r in every)  # whose tensor
    dealt = tuple(Piece(f"x{subscript(r)}", (root,)) for r in every)  # all the root's
    own = tuple((piece,) for piece in all_x)
    chunks = tuple(tuple(Piece(f"x{subscript(r)}[{j}]", (r,)) for j in every) for r in every)  # by rank, then by chunk
    total = Piece("Σ x", every)
    sent = Piece("x", (0,))

    def only(rank: int, row: Row) -> tuple[Row, ...]:
        return tuple(row if r == rank else () for r in every)

    return (
        Collective("broadcast", f"rank {root} hands its tensor to every rank", "copy", only(root, (x,)), ((x,),) * n,
                   (root,), every),
        Collective("scatter", f"rank {root} hands one piece to each rank", "deal out", only(root, dealt),
                   tuple((piece,) for piece in dealt), (root,), every),
        Collective("gather", f"every rank hands its tensor to rank {root}, which keeps them side by side", "collect",
                   own, only(root, all_x), every, (root,)),
        Collective("reduce", f"the sum of all tensors ends on rank {root}", "sum", own, only(root, (total,)), every,
                   (root,)),
        Collective("all_gather", "every rank ends with the tensors of all ranks, side by side", "collect", own,
                   (all_x,) * n, every, every),
        Collective("reduce_scatter", "rank r ends with the sum of everybody's chunk r", "sum, deal out", chunks,
                   tuple((Piece(f"Σ x[{j}]", every),) for j in every), every, every),
        Collective("all_reduce", "every rank ends with the sum of all tensors", "sum", own, ((total,),) * n, every,
                   every),
        Collective("all_to_all", "chunk j of every rank goes to rank j", "exchange", chunks,
                   tuple(zip(*chunks, strict=True)), every, every),
        Collective("send_receive", "rank 0 sends its tensor, rank 1 receives it; nobody else takes part", "send",
                   only(0, (sent,)), tuple((sent,) if r < 2 else () for r in every), (0,), (1,)),
        Collective("barrier", "nobody goes on before all ranks have arrived; no data moves", "wait for all", nothing,
                   nothing, every, every),
    )  # fmt: skip


COLLECTIVES = tuple(each.name for each in _collectives(2, 0))


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
    chart = FlowScript()
    block = f"fill:none,stroke:{UNKNOWN},stroke-width:1px,color:{UNKNOWN}"
    nothing = f"fill:none,stroke:none,color:{UNKNOWN}"

    def side(letter: str, rows: tuple[Row, ...]) -> list[Node]:
        nodes = []
        for rank, row in enumerate(rows):
            name = f"{letter}{rank}"
            inner = [chart.node(f"{name}p{i}", piece.label, *_look(piece)) for i, piece in enumerate(row)]
            # a box without anything in it would be drawn as a node and lose its place among the others
            inner = inner or [chart.node(f"{name}p", "–", "nothing", nothing, "normal")]
            nodes.append(chart.node(name, f"rank {rank}", "block", block, sub_nodes=inner, direction="TB"))
        return nodes

    left, right = side("b", shown.before), side("a", shown.after)
    operation = chart.node("op", f"{shown.name} · {shown.does}", "total", NOBODYS_LOOK, "stadium-shape")
    chart.nodes += [*left, operation, *right]
    for rank, node in enumerate(left):
        chart.link(node, operation, "normal" if rank in shown.sources else "hidden")
    for rank, node in enumerate(right):
        chart.link(operation, node, "normal" if rank in shown.targets else "hidden")
    return chart.script(f"{shown.name} over {len(shown.before)} ranks", text)


def _look(piece: Piece) -> tuple[str, str, str]:
    """The class of a piece, what it looks like, and its shape."""
    if len(piece.origins) == 1:
        return f"from{piece.origins[0]}", rank_look(piece.origins[0]), "normal"
    return "total", NOBODYS_LOOK, "normal"


def _svg(shown: Collective, text: str) -> str:
    """Boxes before at the left, after at the right, the operation between, on paper of its own: no theme is known."""
    n = len(shown.before)
    piece, before, after = _widths(shown)
    width = before + after + 2 * (_ARROWS + _EDGE) + _HUB
    height = _TOP + n * _ROW + _EDGE - 6
    middle = _TOP + (n * _ROW - 6) / 2
    left, right, centre = _EDGE, width - _EDGE - after, _EDGE + before + _ARROWS + _HUB / 2
    parts = [
        f'<rect width="{width:.0f}" height="{height}" rx="6" fill="{PAPER}"/>',
        svg_text(left + before / 2, 18, "before", _QUIET),
        svg_text(centre, 18, shown.name, INK, "bold"),
        svg_text(right + after / 2, 18, "after", _QUIET),
    ]
    for rank in range(n):
        y = _TOP + rank * _ROW
        level = y + (_ROW - 6) / 2
        parts += [_box(left, y, rank, shown.before[rank], piece, before)]
        parts += [_box(right, y, rank, shown.after[rank], piece, after)]
        if rank in shown.sources:
            parts.append(svg_curve(left + before + 3, level, centre - _HUB / 2 - 1, middle, rank_color(rank)))
        if rank in shown.targets:
            only = shown.after[rank][0].origins if shown.after[rank] else ()
            color = rank_color(only[0]) if len(shown.sources) == 1 and only else UNKNOWN
            parts.append(svg_curve(centre + _HUB / 2 + 1, middle, right - 3, level, color))
    parts.append(
        f'<rect x="{centre - _HUB / 2}" y="{middle - 14}" width="{_HUB}" height="28" rx="14" '
        f'fill="{NOBODY}" stroke="{UNKNOWN}"/>'
    )
    parts.append(svg_text(centre, middle + 4, shown.does, ON_NOBODY))
    return svg_page(width, height, text, parts)


def _widths(shown: Collective) -> tuple[float, float, float]:
    """px of a piece, so that its label can be read, and of a rank's box before and after."""
    rows = (*shown.before, *shown.after)
    piece = max([_LEAST, *(len(piece.label) * _LETTER + 6 for row in rows for piece in row)])
    before, after = (34 + max(3, *map(len, side)) * (piece + 3) for side in (shown.before, shown.after))
    return piece, before, after


def _box(x: float, y: float, rank: int, row: Row, piece: float, box: float) -> str:
    color = rank_color(rank)
    high = _ROW - 6
    parts = [
        f'<rect x="{x + 0.5}" y="{y + 0.5}" width="{box - 1:.1f}" height="{high - 1}" rx="5" fill="none" '
        f'stroke="{UNKNOWN}" stroke-opacity=".5"/>',
        f'<circle cx="{x + 15}" cy="{y + high / 2}" r="8.5" fill="{color}"/>',
        svg_text(x + 15, y + high / 2 + 3.8, str(rank), text_on(color), "bold"),
    ]
    for i, held in enumerate(row):
        fill = rank_color(held.origins[0]) if len(held.origins) == 1 else NOBODY
        left = x + 30 + i * (piece + 3)
        parts.append(
            f'<rect x="{left:.1f}" y="{y + 5}" width="{piece:.1f}" height="{high - 10}" rx="3" fill="{fill}"/>'
        )
        if len(held.origins) > 1:
            parts += _stripes(held, left, y + high - 8, piece)
        at = y + high / 2 + 3.4 - (1.5 if len(held.origins) > 1 else 0)
        parts.append(svg_text(left + piece / 2, at, held.label, text_on(fill)))
    return "".join(parts)


def _stripes(piece: Piece, left: float, y: float, wide: float) -> list[str]:
    """A sum carries a thin band with the colours of all it holds."""
    each = wide / len(piece.origins)
    return [
        f'<rect x="{left + i * each:.1f}" y="{y:.1f}" width="{each:.1f}" height="3" fill="{rank_color(origin)}"/>'
        for i, origin in enumerate(piece.origins)
    ]
