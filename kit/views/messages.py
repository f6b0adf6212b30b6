"""The messages of this exchange as arrows between ranks, or the collective they are in by its shape."""

from __future__ import annotations

from kit.trace.facts import Trace
from kit.trace.sentences import named
from kit.views.exchange import Exchange, Gathering, Parcel, delivered_bytes, exchange, whole_bytes
from kit.views.gatherings import draw_gathering
from kit.views.layout import arrow, place_labels, ring
from kit.views.markup import escape, heading, rank_class, size_text
from kit.views.moment import position_at
from kit.views.shapes import draw_arrow, draw_label, draw_node

WIDTH = 460
_LETTERS = 20  # of a variable's name on an arrow
_LABELLED = 12  # more messages than this carry no labels; the words name them


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
    parts += [draw_gathering(g, nodes, radius, WIDTH, height) for g in seen.gatherings]
    parts += [draw_node(rank, nodes[rank], radius, moment.states[rank]) for rank in range(world)]
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
        draw_arrow(line, rank_class(parcel.source), pending=not parcel.delivered, told=_parcel_words(parcel))
        for parcel, line in zip(parcels, lines, strict=True)
    ]
    return drawn + [draw_label(label) for label in labels if label is not None]


def _text(parcel: Parcel) -> str:
    mark = "✓" if parcel.delivered else "…"
    label = parcel.label if len(parcel.label) <= _LETTERS else parcel.label[: _LETTERS - 1] + "…"
    return " · ".join(part for part in (label, size_text(parcel.nbytes)) if part) + f" {mark}"
