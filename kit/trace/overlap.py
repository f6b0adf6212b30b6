"""How much communication the ranks' own computing hid in a training step, on one measured time axis.

A *flight* is one rank's part in one operation: issued, under way from when the last rank has come to it, over. A rank
*computes* while it is let run and does not stand in a wait. What is under way while its rank does not compute is
*exposed*; what a rank stands still before the last one has come is not communication, but waiting for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kit.trace.facts import RankTrace, Record
from kit.trace.match import arrivals
from kit.trace.timeline import nth_step, outside, steps, the_step, union

STEP = "ProfilerStep#"  # what torch.profiler calls a training step
Interval = tuple[float, float]  # seconds from the start of the step


@dataclass(frozen=True, slots=True)
class Flight:
    """One operation of one rank, in seconds from the start of the step.

    `begins`: the last rank has come, and the operation before it in the group is over. `parts`: what of it, from then
    on, no computing of this rank hid.
    """

    issued: float
    begins: float
    ends: float
    nbytes: int
    label: str  # 'all_reduce'
    parts: tuple[Interval, ...]


@dataclass(frozen=True, slots=True)
class RankOverlap:
    """One rank's step: intervals in seconds from the first rank's start, disjoint and in order."""

    rank: int
    starts: float
    ends: float
    computing: tuple[Interval, ...]
    flights: tuple[Flight, ...]
    under_way: tuple[Interval, ...]  # when anything was
    exposed_parts: tuple[Interval, ...]
    waiting: tuple[Interval, ...]  # standing still for a rank that had not come
    passes: tuple[tuple[str, float, float], ...]  # (name, from, to)

    @property
    def communication(self) -> float:
        """For how long anything was under way, in seconds: hidden and exposed."""
        return _length(self.under_way)

    @property
    def exposed(self) -> float:
        """For how long something was under way and the rank did not compute, in seconds."""
        return _length(self.exposed_parts)

    @property
    def hidden(self) -> float:
        """For how long something was under way while the rank computed, in seconds."""
        return self.communication - self.exposed

    @property
    def waited(self) -> float:
        """For how long the rank stood still for one that had not come, in seconds."""
        return _length(self.waiting)

    @property
    def exposed_share(self) -> float:
        """Exposed over all communication; 0 where there was none."""
        return self.exposed / self.communication if self.communication else 0.0


@dataclass(frozen=True, slots=True)
class Overlap:
    """A training step of all ranks. `link`: how links were throttled, '' where they were as fast as they are."""

    ranks: tuple[RankOverlap, ...]
    link: str

    @property
    def seconds(self) -> float:
        """From the first rank's start to the last rank's end."""
        return max((rank.ends for rank in self.ranks), default=0.0)

    @property
    def worst(self) -> RankOverlap:
        """The rank with the most exposed communication."""
        return max(self.ranks, key=lambda one: one.exposed)


def measure(record: Record, step: int = -1) -> Overlap:
    """What was computed, what was on its way, and what was exposed, in one training step of a recorded run.

    step: counted from 0 or, negative, from the last. Steps are told from the passes, or where none were seen (a record
    without throttled links) from stretches that code has named as torch.profiler does, 'ProfilerStep#3'; with neither
    the whole run is taken for one step. Raises ValueError for a stepped run, whose times are the person's, and for a
    step that the run does not have.
    """
    if record.meta.mode == "step":
        raise ValueError("a stepped run is as slow as its person: record the function with kit.record to see overlap")
    bounds = [_bounds(rank, step) for rank in record.ranks]
    zero = min((start for start, _ in bounds), default=0)
    link = next((note for note in record.meta.notes if "throttled" in note), "")
    arrived = arrivals(record)
    return Overlap(tuple(_of_rank(rank, bounds[rank.rank], zero, arrived) for rank in record.ranks), link)


def _bounds(rank: RankTrace, step: int) -> tuple[int, int]:
    if steps(rank.passes):
        return the_step(rank.passes, step, rank.rank)
    named = [(one.start, one.end) for one in rank.stretches if one.name.startswith(STEP)]
    if named:
        return nth_step(named, step, rank.rank)
    moments = [moment for interval in rank.active for moment in interval]
    moments += [op.issued for op in rank.operations] + [op.ended for op in rank.operations if op.ended is not None]
    return (min(moments), max(moments)) if moments else (0, 0)


def _of_rank(rank: RankTrace, bounds: tuple[int, int], zero: int, arrived: Mapping[str, int]) -> RankOverlap:
    start, end = bounds
    moved = [(op, op.ended) for op in rank.operations if start <= op.issued <= end and op.ended is not None]
    end = max([end, *(ended for _, ended in moved)])
    came = {op.index: min(ended, op.began or arrived.get(op.match, op.issued)) for op, ended in moved}
    waits = union(wait for op in rank.operations for wait in op.waits)
    computing = outside(union((max(a, start), min(b, end)) for a, b in rank.active or ((start, end),)), waits)
    under_way = union((came[op.index], ended) for op, ended in moved)
    exposed = outside(under_way, computing)
    still = union((max(a, start), min(b, end)) for a, b in waits)
    flights = []
    free: dict[str, int] = {}  # by group: when the operation before is over
    for op, ended in moved:
        begins = min(ended, max(came[op.index], free.get(op.group, 0)))
        free[op.group] = max(ended, free.get(op.group, 0))
        parts = [(max(a, begins), min(b, ended)) for a, b in exposed if max(a, begins) < min(b, ended)]
        issued, moves, ends = ((moment - zero) / 1e9 for moment in (op.issued, begins, ended))
        flights.append(Flight(issued, moves, ends, op.payload, op.words, _seconds(parts, zero)))
    within = [one for one in rank.passes if start <= one.start <= end]
    return RankOverlap(
        rank.rank,
        (start - zero) / 1e9,
        (end - zero) / 1e9,
        _seconds(computing, zero),
        tuple(flights),
        _seconds(under_way, zero),
        _seconds(exposed, zero),
        _seconds(outside(still, exposed), zero),
        tuple((one.name, (one.start - zero) / 1e9, (one.end - zero) / 1e9) for one in within),
    )


def _seconds(intervals: list[tuple[int, int]], zero: int) -> tuple[Interval, ...]:
    return tuple(((start - zero) / 1e9, (end - zero) / 1e9) for start, end in intervals)


def _length(intervals: tuple[Interval, ...]) -> float:
    return sum(end - start for start, end in intervals)
