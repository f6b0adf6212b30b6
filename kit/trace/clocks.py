"""Times of a run without the person: each rank's clock advances only while its own code works.

`retimed` replays the order of events of a trace: computing takes what it took, an operation begins when its last
participant has arrived, and a rank that waits goes on when it has ended. With the durations that were measured this
turns a stepped run into the run it would have been; with durations from a model it predicts one. A rank that a person
held while others were moved stands as long as they worked meanwhile.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from kit.trace.facts import Operation, Position, RankState, RankTrace, Record
from kit.trace.match import arrivals, is_complete
from kit.trace.text import canonical

Cost = Callable[[Operation], int]  # nanoseconds from beginning to end of this rank's part, once all have arrived


@dataclass(slots=True)
class Run:
    """One rank on an axis that begins at 0. All times are nanoseconds."""

    rank: int
    operations: list[Operation] = field(default_factory=list)  # with their times on this axis, in order of issue
    active: list[tuple[int, int]] = field(default_factory=list)  # its code worked or waited
    held: list[tuple[int, int]] = field(default_factory=list)  # a person let others go on without it
    clock: int = 0  # where its own time has come to
    blocked: int | None = None  # index of the operation it still waits in
    since: int = 0  # when that wait began


@dataclass(frozen=True, slots=True)
class Hold:
    """A person kept a rank standing while others were moved. All times are nanoseconds of the trace."""

    rank: int
    since: int  # when it had come to where it stands
    others: tuple[tuple[int, int, int], ...]  # (rank, from, to): how far each that was moved came meanwhile


class Active:
    """How long a rank was let run between two moments; all the time where a trace does not say."""

    def __init__(self, intervals: Sequence[tuple[int, int]]) -> None:
        self.intervals = sorted(intervals)
        self.starts = [start for start, _ in self.intervals]
        self.before = list(accumulate((end - start for start, end in self.intervals), initial=0))

    def until(self, moment: int) -> int:
        index = bisect_right(self.starts, moment) - 1
        if index < 0:
            return 0
        start, end = self.intervals[index]
        return self.before[index] + min(moment, end) - start

    def between(self, start: int, end: int) -> int:
        if end <= start:
            return 0
        return self.until(end) - self.until(start) if self.intervals else end - start


def blocked_operation(record: Record, rank: int) -> tuple[Operation | None, int] | None:
    """The operation a rank waits in at the last position and since when (nanoseconds); None if it does not wait."""
    if not record.positions or rank >= len(record.positions[-1].states):
        return None
    state = record.positions[-1].states[rank]
    if state.phase != "waiting":
        return None
    pending = [op for op in record.ranks[rank].operations if op.ended is None and op.error is None]
    word = (state.operation or "").split(" ")[0]
    alike = [op for op in pending if op.name == word] or pending
    chosen = next((op for op in alike if op.peer in state.waiting_for), alike[-1] if alike else None)
    since = state.since if state.since is not None else chosen.issued if chosen else state.now
    return (chosen, since) if since is not None else None


def past_holds(record: Record) -> list[Hold]:
    """Every hold that is over: its rank was moved again later."""
    return [hold for rank in range(len(record.ranks)) for hold in _holds_of(record, rank)]


def _holds_of(record: Record, rank: int) -> Iterator[Hold]:
    first: int | None = None
    for index, position in enumerate(record.positions):
        if position.states[rank].held:
            first = index if first is None else first
            continue
        if first is not None and first > 0:
            before, after = record.positions[first - 1], record.positions[index - 1]
            stop = record.ranks[rank].stops[after.states[rank].stop]
            yield Hold(rank, stop.time, tuple(_moved(record, before, after, rank)))
        first = None


def _moved(record: Record, before: Position, after: Position, held: int) -> Iterator[tuple[int, int, int]]:
    for earlier, later in zip(before.states, after.states, strict=True):
        start, end = _came_to(record, earlier), _came_to(record, later)
        if later.rank != held and start is not None and end is not None and start < end:
            yield later.rank, start, end


def _came_to(record: Record, state: RankState) -> int | None:
    """The moment up to which a rank's own time had gone when it was seen in a state."""
    if state.phase == "waiting":
        return state.since
    if state.phase == "running":
        return state.now
    return record.ranks[state.rank].stops[state.stop].time if state.stop >= 0 else None


def measured_cost(record: Record) -> Cost:
    """The durations that were measured, from the last arrival to the end of each rank's part."""
    arrived = arrivals(record)

    def cost(op: Operation) -> int:
        began = op.began if op.began is not None else arrived.get(op.match)
        return max(0, op.ended - began) if op.ended is not None and began is not None else 0

    return cost


def retimed(
    record: Record, cost: Cost, compute: float = 1.0, one_port: bool = False, holds: Sequence[Hold] = ()
) -> list[Run]:
    """Every rank of a trace on virtual clocks that start at 0 together.

    cost: see `Cost`. compute: factor on the computing between operations (0: none). one_port: a rank sends one message
    at a time and receives one at a time, and takes part in one collective at a time, as alpha-beta models assume.
    holds: those that are to be kept. Linear in the number of operations, but for one heap.
    """
    return _Replay(record, cost, compute, one_port, holds).run()


_ISSUE, _MARK, _WAIT, _HOLD = range(4)  # what comes first at one moment


class _Event(NamedTuple):
    when: int
    kind: int
    number: int  # of the operation, or of the hold
    operation: Operation | None = None
    end: int | None = None  # of a wait


@dataclass(slots=True)
class _Rank:
    run: Run
    events: list[_Event]
    active: Active
    real: int  # the moment of the trace up to which this rank has been replayed
    final: int
    next: int = 0


class _Replay:
    def __init__(self, record: Record, cost: Cost, compute: float, one_port: bool, holds: Sequence[Hold]) -> None:
        self.cost, self.compute, self.one_port = cost, compute, one_port
        self.holds = holds
        self.marks: list[dict[int, list[int]]] = [{} for _ in holds]  # by rank: its clock as a hold began and ended
        self.parts = {_key(op): entries for entries in record.by_match.values() for op in entries}
        self.issued: dict[tuple[int, int], int] = {}
        self.began: dict[tuple[int, int], int] = {}
        self.ended: dict[tuple[int, int], int] = {}
        self.waits: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.ready: list[tuple[int, int, tuple[int, int]]] = []
        self.free: dict[tuple[int, str], int] = {}
        self.ranks = [self._prepare(record, rank) for rank in record.ranks]

    def _prepare(self, record: Record, rank: RankTrace) -> _Rank:
        events: list[_Event] = []
        for op in rank.operations:
            events.append(_Event(op.issued, _ISSUE, op.index, op))
            events.extend(_Event(start, _WAIT, op.index, op, end) for start, end in op.waits)
        blocked = blocked_operation(record, rank.rank)
        if blocked and blocked[0] is not None:
            events.append(_Event(max(blocked[1], blocked[0].issued), _WAIT, blocked[0].index, blocked[0]))
        events += self._marks_on(rank.rank, [event for event in events if event.kind == _WAIT])
        events += [_Event(hold.since, _HOLD, n) for n, hold in enumerate(self.holds) if hold.rank == rank.rank]
        events.sort(key=itemgetter(0, 1, 2))
        moments = [event.when for event in events] + [event.end for event in events if event.end is not None]
        moments += [moment for interval in rank.active for moment in interval]
        first, last = min(moments, default=0), max(moments, default=0)
        if record.meta.mode == "step" and rank.stops:
            first = rank.stops[0].time  # before its first stop a rank was being set up: not the learner's code
        return _Rank(Run(rank.rank), events, Active(rank.active), first, last)

    def _marks_on(self, rank: int, waits: Sequence[_Event]) -> Iterable[_Event]:
        """Where this rank tells the holds of others how far it had come: of a wait, its beginning."""
        for number, hold in enumerate(self.holds):
            for moment in (moment for other, *moments in hold.others if other == rank for moment in moments):
                within = [w.when for w in waits if w.when <= moment and (w.end is None or moment < w.end)]
                yield _Event(min(within, default=moment), _MARK, number)

    def run(self) -> list[Run]:
        for rank in self.ranks:
            self._advance(rank)
        while self.ready or self._release_one():
            if self.ready:
                self._grant(*heapq.heappop(self.ready))
        return [self._finished(rank) for rank in self.ranks]

    def _advance(self, rank: _Rank) -> None:
        """Replay a rank until it waits for something that has not been granted yet, or to its end."""
        while rank.next < len(rank.events):
            event = rank.events[rank.next]
            self._compute(rank, event.when)
            if not self._pass(rank, event):
                return
            rank.next += 1
        self._compute(rank, rank.final)

    def _pass(self, rank: _Rank, event: _Event) -> bool:
        """Whether the rank gets past an event now."""
        op = event.operation
        if event.kind == _MARK:
            self.marks[event.number].setdefault(rank.run.rank, []).append(rank.run.clock)
            self._wake_held(self.ranks[self.holds[event.number].rank])
        elif op is None:
            return self._hold(rank, event.number)
        elif event.kind == _ISSUE:
            rank.run.operations.append(op)
            self._arrive(op, rank.run.clock)
        elif _key(op) not in self.ended:
            rank.run.blocked, rank.run.since = op.index, rank.run.clock
            return False
        else:
            self._wait(rank, op, self.ended[_key(op)], event.end)
        return True

    def _hold(self, rank: _Rank, number: int) -> bool:
        marks = self.marks[number].values()
        if sum(map(len, marks)) < 2 * len(self.holds[number].others):
            return False
        lasted = max((end - start for start, end in marks), default=0)
        if lasted:
            rank.run.held.append((rank.run.clock, rank.run.clock + lasted))
            rank.run.clock += lasted
        return True

    def _wake_held(self, rank: _Rank) -> None:
        if rank.next < len(rank.events) and rank.events[rank.next].kind == _HOLD:
            self._advance(rank)

    def _compute(self, rank: _Rank, until: int) -> None:
        worked = round(self.compute * rank.active.between(rank.real, until))
        rank.real = max(rank.real, until)
        self._spend(rank, rank.run.clock + worked)

    def _spend(self, rank: _Rank, until: int) -> None:
        if until > rank.run.clock:
            if rank.run.active and rank.run.active[-1][1] == rank.run.clock:
                rank.run.active[-1] = (rank.run.active[-1][0], until)
            else:
                rank.run.active.append((rank.run.clock, until))
            rank.run.clock = until

    def _wait(self, rank: _Rank, op: Operation, until: int, real_end: int | None) -> None:
        start = rank.run.clock
        if until > start:
            self.waits.setdefault(_key(op), []).append((start, until))
            self._spend(rank, until)
        rank.run.blocked = None
        rank.real = max(rank.real, rank.final if real_end is None else real_end)

    def _arrive(self, op: Operation, clock: int) -> None:
        self.issued[_key(op)] = clock
        parts = self.parts[_key(op)]
        if is_complete(parts) and all(_key(part) in self.issued for part in parts):
            arrival = max(self.issued[_key(part)] for part in parts)
            heapq.heappush(self.ready, (arrival, len(self.issued), _key(parts[0])))

    def _grant(self, arrival: int, _order: int, key: tuple[int, int]) -> None:
        """Let the communication that became ready first begin, and wake whoever waited for it.

        Nothing that is issued later can become ready earlier, so taking them in this order is causal.
        """
        parts = self.parts[key]
        ports = [(part.rank, port) for part in parts for port in _ports(part)] if self.one_port else []
        begin = max([arrival, *(self.free.get(port, 0) for port in ports)])
        for part in parts:
            self.began[_key(part)] = begin
            self.ended[_key(part)] = begin + self.cost(part)
        for port in ports:
            self.free[port] = max(self.ended[_key(part)] for part in parts)
        for part in parts:
            self._wake(part.rank)

    def _wake(self, number: int) -> None:
        rank = self.ranks[number]
        if rank.run.blocked is not None and (number, rank.run.blocked) in self.ended:
            self._advance(rank)

    def _release_one(self) -> bool:
        """A wait that ended in the trace although its operation never was whole (it raised): go on without it."""
        raised = [
            (event.end, rank.run.rank, event.operation)
            for rank in self.ranks
            if rank.next < len(rank.events)
            and (event := rank.events[rank.next]).end is not None
            and event.operation is not None
        ]
        if not raised:
            return False
        end, number, op = min(raised, key=itemgetter(0, 1))
        rank = self.ranks[number]
        latest = max(self.issued[_key(part)] for part in self.parts[_key(op)] if _key(part) in self.issued)
        self._wait(rank, op, max(rank.run.clock, latest), end)
        rank.next += 1
        self._advance(rank)
        return True

    def _finished(self, rank: _Rank) -> Run:
        rank.run.operations = [
            replace(
                op,
                issued=self.issued[_key(op)],
                began=self.began.get(_key(op)),
                ended=self.ended.get(_key(op)),
                waits=tuple(self.waits.get(_key(op), ())),
            )
            for op in sorted(rank.run.operations, key=lambda op: op.index)
        ]
        return rank.run


def _key(op: Operation) -> tuple[int, int]:
    return op.rank, op.index


def _ports(op: Operation) -> tuple[str, ...]:
    return {"send": ("out",), "recv": ("in",)}.get(canonical(op.name), ("out", "in"))
