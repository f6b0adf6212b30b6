"""The mesh of ranks as a picture: a cell for each, in its place, and with whom it shares what."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from kit.plot.figure import Axes, Axis, Boxes, Column, Figure, Labels, Mark, pixels, values
from kit.topics.gpt.reference.layout import DIRECTIONS, Layout, Place
from kit.trace.text import counted, listed

if TYPE_CHECKING:
    from kit.panels.figure import FigurePanel

Edge = Callable[[Place], float]
MOST = 64  # ranks in a picture
_SIDE, _PAGE = 12, 560  # px beside the drawing, of the narrowest page
_NAMES, _HEAD, _TITLE = 44.0, 18.0, 18.0  # px of 'dp 1' beside a row, of 'tp 1' above a column, of 'pp 1' above both
_WIDE, _HIGH, _DOWN, _ACROSS, _FRAME = 72.0, 28.0, 22.0, 26.0, 4.0  # px of a cell, between rows, stages, to a frame
_LETTER = 6.2  # px
_DATA = {
    "ddp": "hold the same weights and compute with other data; once a step their gradients are averaged",
    "zero1": "hold the same weights and compute with other data; each steps its shard of them, and gathers the others'",
    "zero2": "hold the same weights and compute with other data; each keeps its shard of gradients and optimizer",
    "zero3": "hold one copy of the weights together and compute with other data; layers are gathered as they come",
}
_DRAWN = {"tp": "in one frame", "dp": "⇅", "pp": "→"}
_GROUPS = 4  # that are named, of a direction


def mesh_panel(strategy: str | Layout, ranks: int = 0, at: str = "") -> FigurePanel:
    """The picture of a strategy in words on so many ranks. at: which of them are set off, as 'dp=1, tp=0:4'.

    Raises ValueError as `Layout.parse`, `Layout.at` and `mesh_figure`.
    """
    from kit.panels.figure import FigurePanel

    layout = strategy if isinstance(strategy, Layout) else Layout.parse(strategy, ranks)
    return FigurePanel("Mesh of ranks", mesh_figure(layout, at))


def mesh_figure(layout: Layout, at: str = "") -> Figure:
    """Stages beside each other; in each a row for every replica, in which neighbours share their layers.

    at: which ranks are set off, as `Layout.at` reads it. Raises ValueError for more than 64 ranks.
    """
    if layout.ranks > MOST:
        raise ValueError(f"a picture shows {MOST} ranks at most, and {layout} has {layout.ranks}")
    chosen = set(layout.at(at))
    said = tuple(_said(layout, at))
    title = f"{layout}: {counted(layout.ranks, 'rank')}"
    column = Column((_plot(layout, chosen),), _SIDE, _SIDE)
    return Figure("mesh", title, (column,), "\n".join([title, *said]), said=said, width=_PAGE)


def _plot(layout: Layout, chosen: set[int]) -> Axes:
    room = _PAGE - 2 * _SIDE - _NAMES - _ACROSS * (layout.pp - 1) - 2 * _FRAME
    wide = min(_WIDE, room / (layout.pp * layout.tp))
    above = _TITLE * (layout.pp > 1) + _HEAD * (layout.tp > 1) + _FRAME
    places = {rank: layout.place(rank) for rank in range(layout.ranks)}

    def left(place: Place) -> float:
        return _NAMES + place.pp * (layout.tp * wide + _ACROSS) + place.tp * wide

    def top(place: Place) -> float:
        return above + place.dp * (_HIGH + _DOWN)

    lefts, tops = ([side(place) for place in places.values()] for side in (left, top))
    faint = np.array([rank not in chosen for rank in places])
    told = [f"rank {rank}: dp={place.dp}, tp={place.tp}, pp={place.pp}" for rank, place in places.items()]
    marks: list[Mark] = []
    if layout.tp > 1:
        marks.append(_frames([(left(p), top(p)) for p in places.values() if p.tp == 0], wide * layout.tp))
    marks.append(
        Boxes(
            values(lefts) + 1, values(lefts) + wide - 1, values(tops), values(tops) + _HIGH, np.arange(layout.ranks),
            tuple(f"rank {rank}" for rank in places), told, faint,
        )
    )  # fmt: skip
    whole = _LETTER * len(f"rank {layout.ranks - 1}") <= wide - 2
    for rank, place in places.items():
        role = f"on rank {rank}" if rank in chosen else "ink"
        marks.append(
            _labels([(left(place) + wide / 2, top(place) + _HIGH / 2, f"rank {rank}"[0 if whole else 5 :])], role)
        )
    marks.append(_labels(list(_around(layout, wide, left, top)), "muted"))
    height = above + layout.dp * (_HIGH + _DOWN) - _DOWN + _FRAME + 2
    return Axes(Axis(0.0, _PAGE - 2 * _SIDE), pixels(height), tuple(marks), height, bare=True)


def _around(layout: Layout, wide: float, left: Edge, top: Edge) -> Iterable[tuple[float, float, str]]:
    """What stands beside and between cells."""
    for pp in range(layout.pp):
        first = Place(0, 0, pp)
        if layout.pp > 1:
            yield left(first) + layout.tp * wide / 2, _TITLE / 2, f"pp {pp}"
        for tp in range(layout.tp if layout.tp > 1 else 0):
            yield left(Place(0, tp, pp)) + wide / 2, top(first) - _FRAME - _HEAD / 2, f"tp {tp}"
    for dp in range(layout.dp if layout.dp > 1 else 0):
        yield _NAMES / 2, top(Place(dp, 0, 0)) + _HIGH / 2, f"dp {dp}"
    for rank in range(layout.ranks):
        place = layout.place(rank)
        if place.dp + 1 < layout.dp:
            yield left(place) + wide / 2, top(place) + _HIGH + _DOWN / 2, "⇅"
        if place.pp + 1 < layout.pp and place.tp == 0:
            yield left(place) + layout.tp * wide + _ACROSS / 2, top(place) + _HIGH / 2, "→"


def _frames(corners: list[tuple[float, float]], wide: float) -> Boxes:
    """Around the ranks of each tensor-parallel group."""
    left, top = values([x for x, _ in corners]), values([y for _, y in corners])
    kind = np.zeros(len(corners), dtype=np.intp)
    told = ["these ranks share every layer"] * len(corners)
    return Boxes(
        left - _FRAME + 1, left + wide + _FRAME - 1, top - _FRAME, top + _HIGH + _FRAME, kind, ("muted",), told,
        outline=True,
    )  # fmt: skip


def _labels(texts: list[tuple[float, float, str]], role: str) -> Labels:
    return Labels(
        values([x for x, _, _ in texts]), values([y for _, y, _ in texts]), [text for *_, text in texts], role=role
    )


def _said(layout: Layout, at: str) -> Iterable[str]:
    shared = {
        "tp": "share every layer, each with its part of the matrices"
        + (", and of the positions in between" if layout.sequence else ""),
        "dp": _DATA.get(layout.data, ""),
        "pp": f"hold the layers one after the other, and micro-batches pass from one to the next by {layout.schedule}",
    }
    for name in DIRECTIONS:
        if getattr(layout, name) > 1:
            groups = layout.groups(name)
            named = " | ".join(", ".join(map(str, group)) for group in groups[:_GROUPS])
            more = " | ..." if len(groups) > _GROUPS else ""
            yield f"{name} ({_DRAWN[name]}): {named}{more} {shared[name]}."
    if layout.ranks == 1:
        yield "One rank shares with nobody."
    if at.strip():
        yield f"{at.strip()}: {listed(layout.at(at))}."
