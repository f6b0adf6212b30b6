"""Computing over communication in a training step: a plot for each setting, all on one time axis, and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kit.plot.figure import LETTER, Axes, Axis, Boxes, Column, Figure, Labels, Mark, Segments, pixels, values
from kit.plot.timeline import time_axis
from kit.trace.overlap import Flight, Overlap, RankOverlap
from kit.trace.text import size_text, time_text
from kit.trace.trace import Trace

Measured = Trace | Overlap
MOST_RANKS = 8  # that are drawn; the words have all of them
FAST = "links as fast as they are: where ranks share processors, computing and communication take time from each other"
QUEUED = "Thin lines: issued, and waiting for a late rank or for the operation before."
KEY = (
    ("compute", "compute"),
    ("communicate", "communication, hidden"),
    ("exposed", "exposed"),
    ("wait", "wait for a late rank"),
)
KINDS = tuple(role for role, _ in KEY)
_LEFT, _RIGHT, _AXIS = 46, 140, 20  # px: names of ranks, numbers, the axis
_NAME, _UPPER, _LOWER, _PITCH, _BETWEEN = 18, 13, 10, 31, 8  # px: a name, the two lanes, a rank, two plots
_SAID = 3  # settings whose words stand open under the picture
_NARROW = 374  # px of the plot in the narrowest figure: a name that has room there has room everywhere


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of a lane, `top` to `bottom` px: 'compute', 'wait', 'communicate' (hidden) or 'exposed'."""

    kind: str
    start: float
    end: float
    told: str
    top: float
    bottom: float


def overlap_figure(measured: Measured | Mapping[str, Measured], step: int = -1) -> Figure:
    """A plot for each setting, in it two lanes for each rank: what it computed, what was under way.

    What computing did not hide has its own colour, and its length in ms and per cent at the right. A thin line before
    an operation: it was issued and waited for its turn on the link. measured: a trace (`step` says which of its
    training steps) or an overlap, or name -> that. Raises ValueError for nothing to draw, and for settings measured
    over different links.
    """
    given = measured if isinstance(measured, Mapping) else {"": measured}
    seen = {name: one if isinstance(one, Overlap) else one.overlap(step) for name, one in given.items()}
    if not seen:
        raise ValueError("there is nothing to draw: give a trace, or name -> trace")
    links = list(dict.fromkeys(one.link or FAST for one in seen.values()))
    if len(links) > 1:
        raise ValueError(f"these were measured over different links ({'; '.join(links)}): their times do not compare")
    longest = max(one.seconds for one in seen.values())
    axis = time_axis(longest, most=10, end=1.01 * longest, grid=True)
    last = list(seen)[-1]
    plots = tuple(_plot(name, one, axis, last=name == last) for name, one in seen.items())
    told = tuple(_told(name, one) for name, one in seen.items())
    link = f"Measured with {links[0]}. {QUEUED}"
    folded = told if len(told) > _SAID else ()  # the picture has these numbers too
    said = (link,) if folded else (*told, link)
    words = "\n".join((*told, link))
    return Figure("overlap", "Overlap", (Column(plots, _LEFT, _RIGHT),), words, KEY, said=said, folded=folded)


def _plot(name: str, seen: Overlap, axis: Axis, last: bool) -> Axes:
    ranks = seen.ranks[:MOST_RANKS]
    height = _PITCH * len(ranks) + _BETWEEN
    bars = [bar for row, one in enumerate(ranks) for bar in _bars(one, _PITCH * row)]
    boxes = Boxes(
        left=values([bar.start for bar in bars]),
        right=values([bar.end for bar in bars]),
        top=values([bar.top for bar in bars]),
        bottom=values([bar.bottom for bar in bars]),
        kind=np.array([KINDS.index(bar.kind) for bar in bars], dtype=np.intp),
        kinds=KINDS,
        told=[bar.told for bar in bars],
    )
    queued = [
        (flight.issued, _PITCH * row + _UPPER + 2 + _LOWER / 2, flight.begins)
        for row, one in enumerate(ranks)
        for flight in one.flights
        if flight.begins > flight.issued
    ]
    starts, levels, ends = values(queued).reshape(-1, 3).T
    marks = (Segments(starts, levels, ends, levels, "communicate"), boxes, *_passes(ranks, axis))
    names = tuple((_PITCH * row + 7.5, f"rank {one.rank}") for row, one in enumerate(ranks))
    numbers = tuple((_PITCH * row + 20.0, _number(one)) for row, one in enumerate(ranks))
    return Axes(
        axis,
        pixels(height, names),
        marks,
        height,
        head=_NAME,
        foot=_AXIS if last else 0,
        title=name,
        subtitle=_summary(seen),
        right=numbers,
        bare=not last,
    )


def _number(one: RankOverlap) -> str:
    exposed = time_text(one.exposed) if one.exposed else "0 ms"
    return f"{exposed} · {_percent(one)} exposed" if one.communication else exposed


def _bars(one: RankOverlap, top: float) -> list[Bar]:
    upper, lower = (top, top + _UPPER), (top + _UPPER + 2, top + _UPPER + 2 + _LOWER)
    computing = (
        Bar("compute", a, b, f"rank {one.rank} computes, {time_text(b - a)}", *upper) for a, b in one.computing
    )
    waiting = (
        Bar("wait", a, b, f"rank {one.rank} waits for a late rank, {time_text(b - a)}", *upper) for a, b in one.waiting
    )
    return [*computing, *waiting, *(bar for flight in one.flights for bar in _flight(one.rank, flight, lower))]


def _flight(rank: int, flight: Flight, lane: tuple[float, float]) -> list[Bar]:
    whole = f"{flight.label} of {size_text(flight.nbytes)} on rank {rank}, {time_text(flight.ends - flight.begins)}"
    exposed = sum(b - a for a, b in flight.parts)
    told = f"{whole}, of which {time_text(exposed)} exposed" if exposed else f"{whole}, hidden"
    bars = [Bar("communicate", flight.begins, flight.ends, told, *lane)] if flight.ends > flight.begins else []
    return bars + [Bar("exposed", a, b, told, *lane) for a, b in flight.parts]


def _passes(ranks: tuple[RankOverlap, ...], axis: Axis) -> tuple[Mark, ...]:
    """Where passes begin, and their names where there is room for them."""
    begins = [(start, _PITCH * row) for row, one in enumerate(ranks) for _, start, _ in one.passes]
    named = [
        (start, _PITCH * row + _UPPER / 2, name)
        for row, one in enumerate(ranks)
        for name, start, end in one.passes
        if len(name) * LETTER + 6 < float(axis.share(room(one, start, end))) * _NARROW
    ]
    if not begins:
        return ()
    starts, tops = values(begins).T
    names = Labels(
        values([x for x, _, _ in named]),
        values([y for _, y, _ in named]),
        [name for _, _, name in named],
        role="on compute",
        anchor="start",
        dx=4,
    )
    return Segments(starts, tops, starts, tops + _UPPER, "paper"), names


def room(one: RankOverlap, start: float, end: float) -> float:
    """Seconds for which a pass from `start` to `end` is coloured from its beginning on: room for its name."""
    return max((min(b, end) - start for a, b in one.computing if a <= start < b), default=0.0)


def _summary(seen: Overlap) -> str:
    if not seen.ranks:
        return "no ranks"
    worst, operations = seen.worst, max(len(one.flights) for one in seen.ranks)
    count = f"{operations} operation{'s' if operations != 1 else ''}"
    if not worst.communication:
        return f"{count}, a step of {time_text(seen.seconds)}"
    return (
        f"{count}, {_exposed(worst)} exposed of {time_text(worst.communication)} ({_percent(worst)}) on rank "
        f"{worst.rank}, a step of {time_text(seen.seconds)}"
    )


def _told(name: str, seen: Overlap) -> str:
    ranks = "; ".join(
        f"rank {one.rank} {time_text(one.communication)} under way, {_exposed(one)} of it exposed ({_percent(one)})"
        if one.communication
        else f"rank {one.rank} nothing under way"
        for one in seen.ranks
    )
    return f"{f'{name}: ' if name else ''}a step of {time_text(seen.seconds)}. {ranks}."


def _percent(one: RankOverlap) -> str:
    return f"{one.exposed_share * 100:.0f} %"


def _exposed(one: RankOverlap) -> str:
    return time_text(one.exposed) if one.exposed else "nothing"
