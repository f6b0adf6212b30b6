"""A collective drawn by its shape: a star from the root, a hub that sums, a wall, or everyone to everyone."""

from __future__ import annotations

from kit.trace.sentences import canonical
from kit.views.exchange import Gathering
from kit.views.layout import Label, Point, arrow, place_labels
from kit.views.markup import escape, rank_class, size_text
from kit.views.shapes import draw_arrow, draw_label

_FROM_ROOT = ("broadcast", "scatter")
_TO_ROOT = ("reduce", "gather")
_SIGNS = {
    "all_reduce": "Σ",
    "reduce_scatter": "Σ",
    "reduce_scatter_tensor": "Σ",
    "all_gather": "∪",
    "all_gather_into_tensor": "∪",
    "barrier": "‖",
}
_REDUCTIONS = {"SUM": "Σ", "AVG": "x̄", "MAX": "max", "MIN": "min", "PRODUCT": "Π"}


def draw_gathering(g: Gathering, nodes: list[Point], radius: float, width: float, height: float) -> str:
    """Arrows are solid when it is done and dashed until then; those of ranks that have not called it are faint."""
    name = canonical(g.name)
    if name in (*_FROM_ROOT, *_TO_ROOT) and g.root is not None:
        return _star(g, nodes, radius, width, height, outward=name in _FROM_ROOT)
    if name.startswith("all_to_all"):
        return _everyone(g, nodes, radius)
    return _hub(g, nodes, radius, _sign(g))


def _sign(g: Gathering) -> str:
    name = canonical(g.name)
    if g.reduce and ("reduce" in name):
        return _REDUCTIONS.get(g.reduce, g.reduce.lower())
    return _SIGNS.get(name, "●")


def _star(g: Gathering, nodes: list[Point], radius: float, width: float, height: float, outward: bool) -> str:
    assert g.root is not None
    lines, kinds, texts, waits = [], [], [], []
    for rank in g.ranks:
        if rank == g.root:
            continue
        start, end = (g.root, rank) if outward else (rank, g.root)
        lines.append(arrow(nodes[start], nodes[end], radius))
        kinds.append(rank_class(start))
        texts.append(_note(g, rank))
        waits.append(not g.done)
    placed: list[Label | None] = [None] * len(lines)
    if len(lines) <= 7:
        placed = place_labels(texts, lines, nodes, radius, width, height)
    drawn = [draw_arrow(line, kind, wait) for line, kind, wait in zip(lines, kinds, waits, strict=True)]
    return "".join(drawn + [draw_label(label) for label in placed if label is not None])


def _note(g: Gathering, rank: int) -> str:
    if g.done:
        return f"{size_text(g.nbytes)} ✓"
    return "called …" if rank in g.arrived else "not called"


def _hub(g: Gathering, nodes: list[Point], radius: float, sign: str) -> str:
    x = sum(nodes[rank][0] for rank in g.ranks) / len(g.ranks)
    y = sum(nodes[rank][1] for rank in g.ranks) / len(g.ranks)
    hub = 13.0 if len(sign) < 3 else 18.0
    drawn = []
    for rank in g.ranks:
        kind = rank_class(rank) if rank in g.arrived else "ls-absent"
        inward = arrow(nodes[rank], (x, y), radius, 5 if g.done else 0, hub)
        drawn.append(draw_arrow(inward, kind, pending=not g.done))
        if g.done:
            drawn.append(draw_arrow(arrow((x, y), nodes[rank], hub, 5, radius), "ls-result"))
    mark = f'<g class="ls-hub"><circle cx="{x:.1f}" cy="{y:.1f}" r="{hub}"/>'
    return "".join(drawn) + mark + f'<text x="{x:.1f}" y="{y + 4.5:.1f}">{escape(sign)}</text></g>'


def _everyone(g: Gathering, nodes: list[Point], radius: float) -> str:
    drawn = []
    for source in g.ranks:
        for destination in g.ranks:
            if source != destination:
                line = arrow(nodes[source], nodes[destination], radius, 3)
                kind = rank_class(source) if source in g.arrived else "ls-absent"
                drawn.append(draw_arrow(line, kind, pending=not g.done))
    return "".join(drawn)
