"""The time axis: what every rank did when, as spans in seconds from 0.

Lane 0 of a rank is its own code: it computes, it stands in wait while data moves (communicate), it waits for somebody
who has not come (wait), or a person holds it (held). Lanes 1, 2, ... are communications in flight while lane 0
computes: what computing hides. Spans of one lane never overlap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kit.trace.clocks import Run, blocked_operation, measured_cost, past_holds, retimed
from kit.trace.facts import Operation, Pass, Place, Record
from kit.trace.match import arrivals

Kind = Literal["compute", "communicate", "wait", "held"]
OPEN_SHARE = 0.05  # how far an open span reaches at least, as a share of the axis: enough to be seen


@dataclass(frozen=True, slots=True)
class Span:
    """One stretch of one rank's time, in seconds from the start."""

    rank: int
    kind: Kind
    start: float
    end: float
    label: str  # 'compute', 'recv from rank 3', 'held by you'
    place: Place | None = None
    match: str | None = None  # of the operation it belongs to
    lane: int = 0
    open: bool = False  # not over at the last position: its end is where the picture ends, not a measurement


def lay_out(record: Record) -> tuple[Span, ...]:
    """Every rank's time, by rank, lane and start.

    A stepped run is drawn on virtual clocks: the person's time is cut out, an operation begins at its last arrival, a
    hold lasts as long as the ranks that were moved worked meanwhile (see `kit.trace.clocks`). Recorded and predicted
    runs keep their own times, counted from their common start. A rank that still waits, or is held, at the
    last position has an open span up to the latest clock of all ranks, and a little further where that would be too
    short to be seen.
    """
    stepped = record.meta.mode == "step"
    runs = retimed(record, measured_cost(record), holds=past_holds(record)) if stepped else _recorded(record)
    held = _held(record)
    latest = max((run.clock for run in runs), default=0)
    some_open = any(run.blocked is not None for run in runs) or bool(held)
    least = max(1, round(OPEN_SHARE * latest)) if stepped or held else 0
    horizon = max([latest, *(_open_start(run) + least for run in runs if _is_open(run, held))]) if some_open else latest
    found = [span for run in runs for span in _of_rank(run, horizon, held)]
    return tuple(sorted(found, key=lambda span: (span.rank, span.lane, span.start)))


def _recorded(record: Record) -> list[Run]:
    """The run's own times, moved so that the first moment of all ranks is 0."""
    moments = [moment for rank in record.ranks for interval in rank.active for moment in interval]
    moments += [op.issued for rank in record.ranks for op in rank.operations]
    moments += [stop.time for rank in record.ranks for stop in rank.stops if not rank.active]
    zero = min(moments, default=0)
    arrived = arrivals(record)
    return [_recorded_rank(record, rank, zero, arrived) for rank in range(len(record.ranks))]


def _recorded_rank(record: Record, rank: int, zero: int, arrived: dict[str, int]) -> Run:
    own = record.ranks[rank]
    operations = [
        replace(
            op,
            issued=op.issued - zero,
            began=_moved(op.began if op.began is not None else arrived.get(op.match), zero),
            ended=_moved(op.ended, zero),
            waits=tuple((start - zero, end - zero) for start, end in op.waits),
        )
        for op in own.operations
    ]
    waited = [end for op in operations for _, end in op.waits]
    active = [(start - zero, end - zero) for start, end in own.active]
    if not active:
        moments = [stop.time - zero for stop in own.stops] + [op.issued for op in operations] + waited
        active = [(min(moments), max(moments))] if moments else []
    run = Run(rank, operations, active, clock=max([end for _, end in active] + waited, default=0))
    blocked = blocked_operation(record, rank)
    if blocked is not None:
        op, since = blocked
        run.blocked, run.since = (op.index if op is not None else -1), since - zero
        now = record.positions[-1].states[rank].now
        run.clock = max(run.clock, run.since, (now if now is not None else since) - zero)
    return run


def _moved(moment: int | None, zero: int) -> int | None:
    return None if moment is None else moment - zero


def _held(record: Record) -> dict[int, Place | None]:
    if not record.positions:
        return {}
    return {state.rank: state.place for state in record.positions[-1].states if state.held and state.phase == "paused"}


def _is_open(run: Run, held: dict[int, Place | None]) -> bool:
    return run.blocked is not None or run.rank in held


def _open_start(run: Run) -> int:
    return run.since if run.blocked is not None else run.clock


def _of_rank(run: Run, horizon: int, held: dict[int, Place | None]) -> Iterable[Span]:
    taken: list[tuple[int, int]] = []  # of lane 0, by waits: disjoint, in order
    waits = [(start, end, op) for op in run.operations for start, end in op.waits]
    for start, end, op in sorted(waits, key=_by_time):
        start = max(start, taken[-1][1]) if taken else start
        if start < end:
            yield from _waited(op, start, end)
            taken.append((start, end))
    if run.blocked is not None:
        blocked = next((op for op in run.operations if op.index == run.blocked), None)
        start = max(run.since, taken[-1][1]) if taken else run.since
        if start < horizon:
            yield from _blocked(run.rank, blocked, start, horizon)
            taken.append((start, horizon))
    for start, end in outside(union(run.active), taken):
        yield _span(run.rank, "compute", start, end, "compute")
    for start, end in run.held:
        yield _span(run.rank, "held", start, end, "held by you")
    if run.rank in held and run.blocked is None:
        yield _span(run.rank, "held", run.clock, horizon, "held by you", held[run.rank], open=True)
    yield from _hidden(run, taken)


def _by_time(wait: tuple[int, int, Operation]) -> tuple[int, int, int]:
    return wait[0], wait[1], wait[2].index


def _waited(op: Operation, start: int, end: int) -> Iterable[Span]:
    turn = end if op.began is None else min(max(op.began, start), end)
    if turn > start:
        yield _span(op.rank, "wait", start, turn, op.words, op.place, op.match)
    if end > turn:
        yield _span(op.rank, "communicate", turn, end, op.words, op.place, op.match)


def _blocked(rank: int, op: Operation | None, start: int, end: int) -> Iterable[Span]:
    if op is None:
        yield _span(rank, "wait", start, end, "an operation", open=True)
        return
    for span in _waited(op, start, end):
        yield replace(span, open=True)


def _hidden(run: Run, taken: list[tuple[int, int]]) -> Iterable[Span]:
    """Communications in flight while the rank computed, on as few lanes as hold them."""
    lanes: list[int] = []  # where the last span of lane 1, 2, ... ends
    flights = [(op.began, op.ended, op) for op in run.operations if op.began is not None and op.ended is not None]
    for began, ended, op in sorted(flights, key=lambda flight: (flight[0], flight[1], flight[2].index)):
        first = max(0, bisect_right(taken, (began, began)) - 1)
        for start, end in outside([(began, ended)], taken, first):
            lane = next((number for number, until in enumerate(lanes) if until <= start), len(lanes))
            lanes[lane : lane + 1] = [end]
            yield _span(op.rank, "communicate", start, end, op.words, op.place, op.match, lane + 1)


def _span(
    rank: int,
    kind: Kind,
    start: int,
    end: int,
    label: str,
    place: Place | None = None,
    match: str | None = None,
    lane: int = 0,
    open: bool = False,
) -> Span:
    return Span(rank, kind, start / 1e9, end / 1e9, label, place, match or None, lane, open)


def steps(passes: Sequence[Pass]) -> list[tuple[int, int]]:
    """(from, to) of each training step of one rank, in nanoseconds of its clock.

    A step goes from the first forward pass after the step before to the end of the optimizer's step; several
    micro-batches are one. Where no optimizer of torch stepped, it ends with the last backward pass before the next
    forward pass.
    """
    by_optimizer = any(one.name == "step" for one in passes)
    found: list[tuple[int, int]] = []
    start, end = None, 0
    for one in sorted(passes, key=lambda one: one.start):
        if one.name == "forward" and start is not None and not by_optimizer and end > start:
            found.append((start, end))
            start = None
        if one.name == "forward" and start is None:
            start, end = one.start, one.start
        if start is None:
            continue
        end = max(end, one.end if one.name != "forward" else end)
        if one.name == "step":
            found.append((start, end))
            start = None
    if start is not None and not by_optimizer and end > start:
        found.append((start, end))
    return found


def the_step(passes: Sequence[Pass], number: int, rank: int) -> tuple[int, int]:
    """One of them, counted from 0 or, negative, from the last. Raises ValueError for one that there is not."""
    return nth_step(steps(passes), number, rank)


def nth_step(found: Sequence[tuple[int, int]], number: int, rank: int) -> tuple[int, int]:
    """As `the_step`, of those that are known already."""
    if not -len(found) <= number < len(found):
        there = f"{len(found)}, counted from 0" if found else "none: no module was called, or nothing went backward"
        raise ValueError(f"there is no training step {number} on rank {rank}: the run has {there}")
    return found[number]


def union(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same moments as intervals that neither overlap nor touch, in order."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def outside(intervals: list[tuple[int, int]], taken: list[tuple[int, int]], first: int = 0) -> list[tuple[int, int]]:
    """The parts of some intervals that others, from the first that matters, leave free. Both disjoint and sorted."""
    free = []
    for start, end in intervals:
        while first < len(taken) and taken[first][1] <= start:
            first += 1
        index = first
        while index < len(taken) and taken[index][0] < end:
            if taken[index][0] > start:
                free.append((start, taken[index][0]))
            start = max(start, taken[index][1])
            index += 1
        if start < end:
            free.append((start, end))
    return free
