"""The messages of this exchange as arrows between ranks, or the collective they are in by its shape."""

from __future__ import annotations

from math import hypot
from typing import TYPE_CHECKING

from kit.plot.exchange import Exchange, Gathering, Parcel, delivered_bytes, exchange, whole_bytes
from kit.plot.layout import FONT, Arrow, Label, Point, arrow, place_labels, ring
from kit.plot.markup import escape, heading, rank_class, size_text
from kit.plot.moment import position_at
from kit.trace.text import canonical, named

if TYPE_CHECKING:
    from kit.trace.facts import RankState
    from kit.trace.trace import Trace

WIDTH = 460
_LETTERS = 20  # of a variable's name on an arrow
_LABELLED = 12  # more messages than this carry no labels; the words name them
_HEAD = 9.0  # px, length of an arrow's head, whatever the line's width
_FROM_ROOT = ("broadcast", "scatter")
_TO_ROOT = ("reduce", "gather")
_DOES = {"all_gather": "gather", "all_gather_into_tensor": "gather", "barrier": "wait"}
_REDUCTIONS = {"AVG": "mean"}


def messages_svg(trace: Trace, position: int) -> str:
    """The communication in view as SVG: solid with a check when delivered, dashed while it waits.

    Size depends on the number of ranks alone. `messages_words` says the same as text and is the picture's label.
    """
    moment = position_at(trace, position)
    world = len(moment.states)
    height = messages_height(world)
    radius = _radius(world)
    nodes = ring(world, WIDTH, height, radius)
    seen = exchange(trace, position)
    parts = _arrows(seen.parcels, nodes, radius, height)
    parts += [_gathering(g, nodes, radius, WIDTH, height) for g in seen.gatherings]
    parts += [_node(rank, nodes[rank], radius, moment.states[rank]) for rank in range(world)]
    words = escape(_words(seen))
    return (
        f'<svg class="ls ls-messages" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{words}">{"".join(parts)}</svg>'
    )


def messages_html(trace: Trace, position: int) -> str:
    """The area of the panel: a heading, how much is delivered, the drawing."""
    seen = exchange(trace, position)
    title = "Messages of this exchange" if not seen.gatherings else "Collective"
    return (
        f'<div class="ls ls-messages-area">{heading(title, messages_caption(trace, position))}'
        f"{messages_svg(trace, position)}</div>"
    )


def messages_caption(trace: Trace, position: int) -> str:
    """'2 of 4 delivered · 16 B of 192 B in all'; the total only once the run is over."""
    seen = exchange(trace, position)
    if seen.gatherings:
        return " · ".join(_gathering_caption(g) for g in seen.gatherings[:2])
    so_far, whole = delivered_bytes(trace, position), whole_bytes(trace)
    total = f"{size_text(so_far)} of {size_text(whole)} in all" if whole is not None else f"{size_text(so_far)} so far"
    if not seen.parcels:
        return "nothing sent yet" if whole is None else total if whole else "no messages"
    done = sum(parcel.delivered for parcel in seen.parcels)
    return f"{done} of {len(seen.parcels)} delivered · {total}"


def messages_words(trace: Trace, position: int) -> str:
    """The drawing in words."""
    return _words(exchange(trace, position))


def messages_height(world: int) -> int:
    """Height in px of the drawing."""
    return 180 if world <= 4 else 232


def _words(seen: Exchange) -> str:
    if seen.gatherings:
        return "; ".join(_gathering_words(g) for g in seen.gatherings)
    if not seen.parcels:
        return "No message yet."
    return "; ".join(_parcel_words(parcel) for parcel in seen.parcels)


def _parcel_words(parcel: Parcel) -> str:
    what = f"{parcel.label}, {size_text(parcel.nbytes)}" if parcel.label else size_text(parcel.nbytes)
    state = "delivered" if parcel.delivered else "waits"
    return f"rank {parcel.source} to rank {parcel.destination}: {what}, {state}"


def _gathering_words(g: Gathering) -> str:
    name = (
        g.name + (f" ({g.reduce})" if g.reduce else "") + (f", rank {g.root} is the root" if g.root is not None else "")
    )
    if g.done:
        return f"{name}: all of {named(g.ranks)} are through, {size_text(g.nbytes)} each"
    if not g.missing:
        return f"{name}: all of {named(g.ranks)} have called it, data moves"
    called = f"{named(g.arrived)} called it" if g.arrived else "nobody called it"
    return f"{name}: {called}; {named(g.missing)} not yet"


def _gathering_caption(g: Gathering) -> str:
    what = f"{g.name} of {g.label}" if g.label else g.name
    each = f" · {size_text(g.nbytes)} each" if g.nbytes else ""
    return f"{what} · {len(g.arrived)} of {len(g.ranks)} called{each}"


def _radius(world: int) -> float:
    return 18.0 if world <= 4 else 14.0 if world <= 8 else 9.0


def _arrows(parcels: tuple[Parcel, ...], nodes: list[tuple[float, float]], radius: float, height: float) -> list[str]:
    pairs = {(parcel.source, parcel.destination) for parcel in parcels}
    lines, texts = [], []
    repeats: dict[tuple[int, int], int] = {}
    for parcel in parcels:
        pair = parcel.source, parcel.destination
        again = repeats[pair] = repeats.get(pair, -1) + 1
        beside = (6.0 if pair[::-1] in pairs else 0.0) + 11.0 * again
        lines.append(arrow(nodes[parcel.source], nodes[parcel.destination], radius, beside))
        texts.append(_text(parcel))
    labels = (
        place_labels(texts, lines, nodes, radius, WIDTH, height) if len(parcels) <= _LABELLED else [None] * len(texts)
    )
    drawn = [
        _arrow(line, rank_class(parcel.source), pending=not parcel.delivered, told=_parcel_words(parcel))
        for parcel, line in zip(parcels, lines, strict=True)
    ]
    return drawn + [_label(label) for label in labels if label is not None]


def _text(parcel: Parcel) -> str:
    mark = "✓" if parcel.delivered else "…"
    label = parcel.label if len(parcel.label) <= _LETTERS else parcel.label[: _LETTERS - 1] + "…"
    return " · ".join(part for part in (label, size_text(parcel.nbytes)) if part) + f" {mark}"


def _gathering(g: Gathering, nodes: list[Point], radius: float, width: float, height: float) -> str:
    """Arrows are solid when it is done and dashed until then; those of ranks that have not called it are faint."""
    name = canonical(g.name)
    if name in (*_FROM_ROOT, *_TO_ROOT) and g.root is not None:
        return _star(g, nodes, radius, width, height, outward=name in _FROM_ROOT)
    if name.startswith("all_to_all"):
        return _everyone(g, nodes, radius)
    return _hub(g, nodes, radius, _does(g))


def _does(g: Gathering) -> str:
    """A word for what happens to the data: 'sum', 'gather'."""
    name = canonical(g.name)
    if g.reduce and "reduce" in name:
        return _REDUCTIONS.get(g.reduce, g.reduce.lower())
    return _DOES.get(name, "sum" if "reduce" in name else "")


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
    drawn = [_arrow(line, kind, wait) for line, kind, wait in zip(lines, kinds, waits, strict=True)]
    return "".join(drawn + [_label(label) for label in placed if label is not None])


def _note(g: Gathering, rank: int) -> str:
    if g.done:
        return f"{size_text(g.nbytes)} ✓"
    return "called …" if rank in g.arrived else "not called"


def _hub(g: Gathering, nodes: list[Point], radius: float, word: str) -> str:
    x = sum(nodes[rank][0] for rank in g.ranks) / len(g.ranks)
    y = sum(nodes[rank][1] for rank in g.ranks) / len(g.ranks)
    hub = max(13.0, 6 + 3.8 * len(word))
    drawn = []
    for rank in g.ranks:
        kind = rank_class(rank) if rank in g.arrived else "ls-absent"
        inward = arrow(nodes[rank], (x, y), radius, 5 if g.done else 0, hub)
        drawn.append(_arrow(inward, kind, pending=not g.done))
        if g.done:
            drawn.append(_arrow(arrow((x, y), nodes[rank], hub, 5, radius), "ls-result"))
    mark = f'<g class="ls-hub"><circle cx="{x:.1f}" cy="{y:.1f}" r="{hub}"/>'
    return "".join(drawn) + mark + f'<text x="{x:.1f}" y="{y + 4:.1f}">{escape(word)}</text></g>'


def _everyone(g: Gathering, nodes: list[Point], radius: float) -> str:
    drawn = []
    for source in g.ranks:
        for destination in g.ranks:
            if source != destination:
                line = arrow(nodes[source], nodes[destination], radius, 3)
                kind = rank_class(source) if source in g.arrived else "ls-absent"
                drawn.append(_arrow(line, kind, pending=not g.done))
    return "".join(drawn)


def _node(rank: int, at: Point, radius: float, state: RankState | None = None) -> str:
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


def _arrow(line: Arrow, kind: str, pending: bool = False, told: str = "") -> str:
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


def _label(label: Label) -> str:
    """A label with its middle on its point."""
    x, y = label.at
    return f'<text class="ls-label" x="{x:.1f}" y="{y + FONT * 0.35:.1f}">{escape(label.text)}</text>'
