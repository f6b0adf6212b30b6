"""A pipeline schedule in time: when every action begins and ends, who is idle, who holds how much.

`simulated` says so before it runs, by a discrete-event simulation: a rank takes its actions in their order, each as
soon as what it needs has come; messages travel while ranks compute, one after the other on each link. The work is
linear in the number of actions. `measured` reads the same off the trace of a run. Both are a `Timeline`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, cast

from kit.plan.flaws import flaws
from kit.plan.progress import progress
from kit.plan.schedule import BACKWARD, FORWARD, FREES, INPUT, PASSES_BACK, WEIGHT, Action, Kind, Schedule
from kit.trace.facts import RankTrace, Record


@dataclass(frozen=True)
class Times:
    """Seconds of one action at one stage, and of a message between two ranks.

    input, weight: the two parts of a backward pass; a whole one takes both. together: what a forward and a backward
    pass take that run along with each other; None: one after the other. latency in s; message: seconds for which one
    activation or gradient keeps the link busy, its bytes / bandwidth. between: the pairs of ranks, the lower one first,
    whose messages take that long, others none; None: all. stages: by stage, how many times longer all of this takes
    there. measured: of single actions; it comes before all else.
    """

    forward: float = 1.0
    input: float = 1.0
    weight: float = 1.0
    together: float | None = None
    latency: float = 0.0
    message: float = 0.0
    between: frozenset[tuple[int, int]] | None = None
    stages: Mapping[int, float] = field(default_factory=dict)
    measured: Mapping[Action, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = [self.forward, self.input, self.weight, self.together or 0.0, self.latency, self.message]
        if min([*given, *self.stages.values(), *self.measured.values()]) < 0:
            raise ValueError("times are seconds, 0 or more")

    def of(self, action: Action) -> float:
        if self.measured and action in self.measured:
            return self.measured[action]
        seconds = self._by_kind[action.kind]
        return seconds * self.stages.get(action.stage, 1.0) if self.stages else seconds

    @cached_property
    def _by_kind(self) -> dict[Kind, float]:
        whole = self.input + self.weight
        return {FORWARD: self.forward, BACKWARD: whole, INPUT: self.input, WEIGHT: self.weight}


class Box(NamedTuple):
    """One action: seconds from the start."""

    action: Action
    began: float
    ended: float


Moments = tuple[tuple[float, ...], ...]  # by rank, an entry an action


@dataclass(frozen=True, eq=False)
class Timeline:
    """A schedule with the seconds from the start at which each of its actions begins and ends.

    An action lasts while it computes: waiting for a message is idle time and lies before it.
    """

    schedule: Schedule
    began: Moments
    ended: Moments

    def boxes(self, rank: int) -> Iterator[Box]:
        return map(Box, self.schedule.rows[rank], self.began[rank], self.ended[rank])

    @cached_property
    def seconds(self) -> float:
        """From the first action to the end of the last."""
        return max((max(row) for row in self.ended if row), default=0.0)

    def busy(self, rank: int) -> float:
        """Seconds in which a rank computes; what runs together counts once."""
        total = until = 0.0
        for began, ended in zip(self.began[rank], self.ended[rank], strict=True):
            total += max(0.0, ended - max(began, until))
            until = max(until, ended)
        return total

    def idle(self, rank: int) -> float:
        """Seconds of the whole in which a rank does not compute."""
        return self.seconds - self.busy(rank)

    def bubble(self, rank: int) -> float:
        """Seconds in which a rank stands still between its own first action and its last: what the papers on zero
        bubble count, since the ranks of the next step may begin one after the other, too.
        """
        return max(self.ended[rank]) - self.began[rank][0] - self.busy(rank) if self.began[rank] else 0.0

    @property
    def idle_share(self) -> float:
        """Idle time of all ranks / time of all ranks: (p - 1) / (m + p - 1) for GPipe and 1F1B."""
        ranks = range(len(self.began))
        return sum(map(self.idle, ranks)) / (self.seconds * len(ranks))

    @property
    def overhead(self) -> float:
        """Idle time / the time of an ideal pipeline, which never waits: (p - 1) / m for GPipe and 1F1B."""
        ranks = range(len(self.began))
        return sum(map(self.idle, ranks)) / sum(map(self.busy, ranks))

    def held(self, rank: int) -> tuple[tuple[float, int], ...]:
        """When the number of activations that a rank holds changes, and to what: each of one micro-batch at one stage,
        from the begin of its forward pass to the end of B, or of W.
        """
        changes = [(box.began, 1) for box in self.boxes(rank) if box.action.kind == FORWARD]
        changes += [(box.ended, -1) for box in self.boxes(rank) if box.action.kind in FREES]
        count, steps = 0, {0.0: 0}
        for when, change in sorted(changes):
            count += change
            steps[when] = count
        return tuple(steps.items())

    def most_held(self, rank: int) -> int:
        return max(count for _, count in self.held(rank))

    def times(self, links: Times | None = None) -> Times:
        """What every action took here: put into `simulated`, it says what waiting alone makes of them.

        links: whose messages to go by; None: they take no time.
        """
        took = {box.action: box.ended - box.began for rank in range(len(self.began)) for box in self.boxes(rank)}
        return replace(links or Times(), measured=took)


def simulated(schedule: Schedule, times: Times | None = None) -> Timeline:
    """When every action of a schedule begins and ends.

    times: None counts in units, F, I and W one each. A schedule that lacks an action is simulated as it is. ValueError
    for one in which ranks wait for ever, or actions are of no stage or micro-batch of its own.
    """
    times = times or Times()
    going = progress(schedule)
    if going.stuck:
        raise ValueError(f"this schedule comes to a halt: {flaws(schedule)[0].sentence}")
    rows, own, other = going.numbered.rows, going.numbered.own, going.numbered.other
    over = [0.0] * (going.numbered.count + 1)  # by number; the last one for what needs nothing
    arrived = over.copy()  # where the stage before or after it is
    links = _Links(schedule, times)
    began: list[list[float]] = [[] for _ in rows]
    ended: list[list[float]] = [[] for _ in rows]
    clock = [0.0] * schedule.ranks
    together = schedule.together if times.together is not None else frozenset()
    for rank in going.order:
        position = len(began[rank])
        action, number = schedule.rows[rank][position], rows[rank][position]
        begin = max(clock[rank], over[own[number]], arrived[other[number]])
        end = begin + times.of(action)
        leads = False
        if together and times.together is not None:
            leads = (rank, position) in together
            if leads:
                partner = rows[rank][position + 1]
                begin = max(begin, over[own[partner]], arrived[other[partner]])
            if leads or (rank, position - 1) in together:
                end = begin + times.together
        began[rank].append(begin)
        ended[rank].append(end)
        clock[rank] = begin if leads else end
        over[number], arrived[number] = end, links.arrival(rank, action, end)
    return Timeline(schedule, tuple(map(tuple, began)), tuple(map(tuple, ended)))


_NAMED = re.compile(r"PP:(\d+)([FBIW])(\d+)")  # as torch's own pipelines name their actions, too


def measured(schedule: Schedule, run: Record, step: int = -1) -> Timeline:
    """When every action of a schedule began and ended in a recorded run, whose code names them: 'PP:0F3'.

    step: counted from 0 or, negative, from the last. What stands under a name before its last wait for a message counts
    as waiting. ValueError where the run did not take every action of the schedule in that step, in its order.
    """
    if len(run.ranks) != schedule.ranks:
        raise ValueError(f"a schedule of {schedule.ranks} ranks did not run on {len(run.ranks)}")
    seen = [_named_actions(rank) for rank in run.ranks]
    moments: list[list[tuple[int, int]]] = []
    for rank, (row, named) in enumerate(zip(schedule.rows, seen, strict=True)):
        steps = [named[first : first + len(row)] for first in range(0, len(named), len(row) or 1)]
        if row and not -len(steps) <= step < len(steps):
            raise ValueError(f"rank {rank} has taken {len(steps)} steps of this schedule: there is no step {step}")
        taken = steps[step] if row else []
        if [action for action, _, _ in taken] != list(row):
            raise ValueError(
                f"rank {rank} did not take the actions of this schedule in their order: its code has to name them, "
                "`with record_function('PP:0F3')`, as kit.topics.pipeline.Pipeline and torch's runtime do"
            )
        moments.append([(began, ended) for _, began, ended in taken])
    zero = min((began for row in moments for began, _ in row), default=0)
    began = tuple(tuple((begin - zero) / 1e9 for begin, _ in row) for row in moments)
    ended = tuple(tuple((end - zero) / 1e9 for _, end in row) for row in moments)
    return Timeline(schedule, began, ended)


def _named_actions(rank: RankTrace) -> list[tuple[Action, int, int]]:
    """Each with the moments, in ns, at which it began to compute and was over."""
    waits = sorted(wait for operation in rank.operations for wait in operation.waits)
    found, at = [], 0
    for stretch in rank.stretches:
        named = _NAMED.fullmatch(stretch.name)
        if named is None:
            continue
        began = stretch.start
        while at < len(waits) and waits[at][1] <= stretch.end:
            began = max(began, waits[at][1])
            at += 1
        found.append((Action(int(named[1]), cast("Kind", named[2]), int(named[3])), began, stretch.end))
    return found


class _Links:
    """One between every two ranks and for each direction: it carries a message at a time, in the order of sending."""

    def __init__(self, schedule: Schedule, times: Times) -> None:
        home, is_first, is_last = schedule.rank_of, schedule.is_first, schedule.is_last
        self._on = {stage: home.get(stage + 1, rank) for stage, rank in home.items() if not is_last(stage)}
        self._back = {stage: home.get(stage - 1, rank) for stage, rank in home.items() if not is_first(stage)}
        self._times = times
        self._free: dict[tuple[int, int], float] = {}

    def arrival(self, rank: int, action: Action, when: float) -> float:
        """Where what an action made is needed next, if it is sent there at `when`."""
        stage, kind, _ = action
        if kind == FORWARD:
            to = self._on.get(stage, rank)
        else:
            to = self._back.get(stage, rank) if kind in PASSES_BACK else rank
        between = self._times.between
        if to == rank or (between is not None and (min(rank, to), max(rank, to)) not in between):
            return when
        self._free[rank, to] = free = max(when, self._free.get((rank, to), 0.0)) + self._times.message
        return free + self._times.latency
