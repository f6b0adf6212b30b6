"""What each collective does: what every rank holds before and after, as data and as a chart by whose data it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kit.plot.diagram import Diagram, flow_script, quoted
from kit.plot.markup import escape
from kit.plot.palette import INK, PAGE, PAPER, UNKNOWN, rank_color, text_on

if TYPE_CHECKING:
    from mermaid.flowchart import Link, Node

Row = tuple["Piece", ...]

_ROW, _TOP, _EDGE = 34, 30, 8  # px: a rank, the line of headings, around the drawing
_LETTER, _LEAST = 6.6, 44  # px: a letter of a piece, a piece at least
_HUB, _ARROWS = 96, 44  # px: the operation, the arrows on each side of it
_SUM = "#e7e9ec"  # a sum of all ranks belongs to no rank: a neutral fill
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
    all_x = tuple(Piece(f"x{_sub(r)}", (r,)) for r in every)  # whose tensor
    dealt = tuple(Piece(f"x{_sub(r)}", (root,)) for r in every)  # all the root's
    own = tuple((piece,) for piece in all_x)
    chunks = tuple(tuple(Piece(f"x{_sub(r)}[{j}]", (r,)) for j in every) for r in every)  # by rank, then by chunk
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


def _sub(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


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
    from mermaid.flowchart import Node

    styles, classes = {_BLOCK, _NOTHING}, {"class op block"}
    operation = Node("op", quoted(f"{shown.name} · {shown.does}"), "stadium-shape")
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
        links.append(_link(node, operation, rank in shown.sources))
    for rank, node in enumerate(right):
        links.append(_link(operation, node, rank in shown.targets))
    title = f"{shown.name} over {len(shown.before)} ranks"
    return flow_script([*left, operation, *right], links, "LR", title, text, styles, classes)


# paper of their own: what JupyterLab has drawn stays as it is when a reader turns the theme
_NOTHING = f"classDef nothing fill:none,stroke:none,color:{INK}"
_BLOCK = f"classDef block fill:{PAGE['soft'].light},stroke:{UNKNOWN},stroke-width:1px,color:{INK}"


def _link(start: Node, end: Node, drawn: bool) -> Link:
    """An arrow, or what keeps two boxes in order: a hidden link with an arrow head does not parse."""
    from mermaid.flowchart import Link

    return Link(start, end, "normal") if drawn else Link(start, end, "hidden", head_right="none")


def _style(piece: Piece) -> str:
    if len(piece.origins) == 1:
        color = rank_color(piece.origins[0])
        return f"classDef from{piece.origins[0]} fill:{color},stroke:{color},color:{text_on(color)}"
    return f"classDef total fill:{_SUM},stroke:{UNKNOWN},color:{INK}"


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
        _text(left + before / 2, 18, "before"),
        _text(centre, 18, shown.name, INK, "bold"),
        _text(right + after / 2, 18, "after"),
    ]
    for rank in range(n):
        y = _TOP + rank * _ROW
        level = y + (_ROW - 6) / 2
        parts += [_box(left, y, rank, shown.before[rank], piece, before)]
        parts += [_box(right, y, rank, shown.after[rank], piece, after)]
        if rank in shown.sources:
            parts.append(_line(left + before + 3, level, centre - _HUB / 2 - 1, middle, rank_color(rank)))
        if rank in shown.targets:
            only = shown.after[rank][0].origins if shown.after[rank] else ()
            color = rank_color(only[0]) if len(shown.sources) == 1 and only else UNKNOWN
            parts.append(_line(centre + _HUB / 2 + 1, middle, right - 3, level, color))
    parts.append(
        f'<rect x="{centre - _HUB / 2}" y="{middle - 14}" width="{_HUB}" height="28" rx="14" '
        f'fill="{_SUM}" stroke="{UNKNOWN}"/>'
    )
    parts.append(_text(centre, middle + 4, shown.does, INK))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
        f'height="{height}" role="img" aria-label="{escape(text)}" font-family="system-ui, DejaVu Sans, sans-serif">'
        f"<title>{escape(text)}</title>{''.join(parts)}</svg>"
    )


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
        _text(x + 15, y + high / 2 + 3.8, str(rank), text_on(color), "bold"),
    ]
    for i, held in enumerate(row):
        fill = rank_color(held.origins[0]) if len(held.origins) == 1 else _SUM
        left = x + 30 + i * (piece + 3)
        parts.append(
            f'<rect x="{left:.1f}" y="{y + 5}" width="{piece:.1f}" height="{high - 10}" rx="3" fill="{fill}"/>'
        )
        if len(held.origins) > 1:
            parts += _stripes(held, left, y + high - 8, piece)
        at = y + high / 2 + 3.4 - (1.5 if len(held.origins) > 1 else 0)
        parts.append(_text(left + piece / 2, at, held.label, text_on(fill)))
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


def _text(x: float, y: float, text: str, fill: str = _QUIET, weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" font-size="11" font-weight="{weight}" fill="{fill}">'
        f"{escape(text)}</text>"
    )
