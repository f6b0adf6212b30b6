"""Computing over communication in a training step, a row for each setting on one time axis: laid out, and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kit.cost.sweep import time_text
from kit.trace.facts import Trace
from kit.trace.overlap import Flight, Interval, Overlap, RankOverlap
from kit.trace.overlap import overlap as overlap_of
from kit.views.bars import ticks
from kit.views.holdings import bytes_text

Measured = Trace | Overlap
MOST_RANKS = 8  # that are drawn; the words have all of them
FAST = "links as fast as they are: where ranks share processors, computing and communication take time from each other"
KEY = "Thin lines: issued, and waiting for a late rank or for the operation before."


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of a lane: 'compute', 'wait', 'communicate' (hidden) or 'exposed'; `told` for its tooltip."""

    kind: str
    start: float
    end: float
    told: str


@dataclass(frozen=True, slots=True)
class Lanes:
    """One rank of one setting. queued: from an operation's issue to when it was under way."""

    rank: int
    computing: tuple[Bar, ...]
    moving: tuple[Bar, ...]
    queued: tuple[Interval, ...]
    passes: tuple[tuple[str, float, float], ...]
    number: str  # what is exposed: '12 ms · 31 %'

    def room(self, start: float, end: float) -> float:
        """Seconds for which a pass from `start` to `end` is coloured from its beginning on: room for its name."""
        within = (bar for bar in self.computing if bar.kind == "compute" and bar.start <= start < bar.end)
        return max((min(bar.end, end) - start for bar in within), default=0.0)


@dataclass(frozen=True, slots=True)
class Row:
    """One setting: its name, its summary, a pair of lanes for each rank."""

    name: str
    summary: str
    lanes: tuple[Lanes, ...]


@dataclass(frozen=True, slots=True)
class Board:
    rows: tuple[Row, ...]
    seconds: float  # at the right end of the axis
    marks: tuple[tuple[float, str], ...]
    link: str
    told: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"Overlap · {'links as fast as they are' if self.link == FAST else self.link}"

    def words(self) -> str:
        """The picture in words: for each setting the length of the step, communication, and what of it was exposed."""
        return "\n".join([*self.told, f"Measured with {self.link}. {KEY}"])


def board(measured: Measured | Mapping[str, Measured], step: int = -1) -> Board:
    """What a picture of overlap shows: a row for each setting.

    measured: a trace (`step` says which of its training steps) or an overlap, or name -> that. Raises ValueError for
    nothing to draw, and for settings measured over different links.
    """
    given = measured if isinstance(measured, Mapping) else {"": measured}
    seen = {name: one if isinstance(one, Overlap) else overlap_of(one, step) for name, one in given.items()}
    if not seen:
        raise ValueError("there is nothing to draw: give a trace, or name -> trace")
    links = list(dict.fromkeys(one.link or FAST for one in seen.values()))
    if len(links) > 1:
        raise ValueError(f"these were measured over different links ({'; '.join(links)}): their times do not compare")
    rows = tuple(_row(name, one) for name, one in seen.items())
    longest = max(one.seconds for one in seen.values())
    axis = ticks(longest, most=10)
    end = 1.01 * longest or axis.end
    marks = tuple((seconds, label) for seconds, label in axis.marks() if seconds <= end)
    return Board(rows, end, marks, links[0], tuple(_told(name, one) for name, one in seen.items()))


def overlap_words(measured: Measured | Mapping[str, Measured], step: int = -1) -> str:
    """The picture in words."""
    return board(measured, step).words()


def _row(name: str, seen: Overlap) -> Row:
    return Row(name, _summary(seen), tuple(_lanes(one) for one in seen.ranks[:MOST_RANKS]))


def _lanes(one: RankOverlap) -> Lanes:
    computing = [Bar("compute", a, b, f"rank {one.rank} computes, {time_text(b - a)}") for a, b in one.computing]
    waiting = [Bar("wait", a, b, f"rank {one.rank} waits for a late rank, {time_text(b - a)}") for a, b in one.waiting]
    moving = [bar for flight in one.flights for bar in _flight(one.rank, flight)]
    queued = tuple((flight.issued, flight.begins) for flight in one.flights if flight.begins > flight.issued)
    share = f" · {_percent(one)}" if one.communication else ""
    number = f"{time_text(one.exposed) if one.exposed else '0 ms'}{share}"
    return Lanes(one.rank, tuple(computing + waiting), tuple(moving), queued, one.passes, number)


def _flight(rank: int, flight: Flight) -> list[Bar]:
    whole = f"{flight.label} of {bytes_text(flight.nbytes)} on rank {rank}, {time_text(flight.ends - flight.begins)}"
    exposed = sum(b - a for a, b in flight.parts)
    told = f"{whole}, of which {time_text(exposed)} exposed" if exposed else f"{whole}, hidden"
    bars = [Bar("communicate", flight.begins, flight.ends, told)] if flight.ends > flight.begins else []
    return bars + [Bar("exposed", a, b, told) for a, b in flight.parts]


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
