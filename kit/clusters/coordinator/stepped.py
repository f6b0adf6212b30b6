"""Coordinating a stepped run: operations are let go when they match, a motion ends when no rank runs any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import shorten

from kit.clusters.coordinator.matching import Match, PendingOperations
from kit.clusters.coordinator.run import CoordinatedRun, Outbox, Sight
from kit.clusters.coordinator.status import RankStatus
from kit.protocol.messages import (
    AtStop,
    Changed,
    CutOff,
    Go,
    How,
    Launch,
    Move,
    Operated,
    PartFailed,
    Posted,
    ProcessNews,
    RankLost,
    RankResumed,
    RankSuspended,
    Refuse,
    Run,
    RunNews,
    RunOrder,
    Settled,
    Waits,
)
from kit.trace.facts import ENDED, Operation, RankState
from kit.trace.match import left_alone
from kit.trace.waits import deadlock

SENTENCE = 200  # characters of a library's error that others are told
REPLACES_WHILE_WAITING: tuple[How, ...] = ("finish", "to_line", "to_collective", "out")


@dataclass(frozen=True)
class Motion:
    id: int
    deadline: int


class SteppedRun(CoordinatedRun):
    def __init__(self, order: Run, ranks: Sequence[RankStatus], sight: Sight, out: Outbox, now: int) -> None:
        super().__init__(order.task.run, ranks, sight, out)
        self._pending = PendingOperations()
        self._open: dict[tuple[int, int], Operation] = {}  # (rank, index): posted, not launched
        self._launched: dict[tuple[int, int], Match] = {}  # (rank, index): not known to be over
        self._waits: dict[int, Operation] = {}  # by rank: what it waits in, or waited in last
        self._motion: Motion | None = Motion(order.motion, now + order.patience)
        self._given_up: set[str] = set()  # matches for which a rank has waited as long as it would
        self._told = [0] * len(ranks)  # how often each was told to go
        self._late = False  # a motion's time ran out while ranks were running

    @property
    def deadline(self) -> int | None:
        return self._motion.deadline if self._motion is not None else None

    def hear(self, message: RunOrder | RunNews, now: int) -> None:
        match message:
            case Move():
                self._move(message, now)
            case Posted():
                self._posted(message, now)
            case Waits():
                self._wait(message)
            case Operated():
                self._operated(message, now)
            case PartFailed():
                self._cut_off(message)
            case AtStop(phase="paused") if message.obeyed < self._told[message.rank]:
                super().hear(message, now)
                self._ranks[message.rank].enter("running", now)  # it came to a stop as it was told to go on
            case _:
                super().hear(message, now)
        self._settle(now)

    def process_changed(self, news: ProcessNews, now: int) -> None:
        if isinstance(news, RankLost):
            self._pending.withdraw(news.rank)
        if self._motion is not None:
            self._settle(now)
            return
        what = {RankLost: "died", RankSuspended: "was stopped", RankResumed: "was continued"}[type(news)]
        self._tell_changed(f"rank {news.rank} {what}", now)

    def tick(self, now: int) -> None:
        if self._motion is not None and now >= self._motion.deadline:
            self._motion_over(self._motion, now)

    def missing(self, rank: int) -> tuple[int, ...]:
        return self._pending.missing(self._waits[rank])

    def _move(self, order: Move, now: int) -> None:
        for rank in order.ranks:
            status = self._ranks[rank]
            if status.phase == "paused":
                status.enter("running", now)
            elif status.phase == "waiting" and order.how not in REPLACES_WHILE_WAITING:
                continue
            if status.phase in ("running", "waiting"):
                self._told[rank] += 1
                self._out.to_rank(rank, Go(order.run, order.how, order.line, order.file))
        self._motion = Motion(order.motion, now + order.patience)

    def _posted(self, news: Posted, now: int) -> None:
        operation = news.operation
        self._ranks[news.rank].operations = operation.index + 1
        self._open[news.rank, operation.index] = operation
        self._out.to_kernel(news)
        match = self._pending.post(operation)
        if match is not None:
            self._conclude(match, now)

    def _wait(self, news: Waits) -> None:
        status, operation = self._ranks[news.rank], self._open.get((news.rank, news.index))
        if operation is not None and status.phase == "running":
            self._waits[news.rank] = operation
            place = news.place or operation.place or status.place
            status.wait_in(operation.words, news.since, place, news.gives_up)

    def _operated(self, news: Operated, now: int) -> None:
        """More is known of an operation: perhaps that it was waited for in vain, and no longer is."""
        status, operation = self._ranks[news.rank], news.operation
        if operation.error is not None and (news.rank, operation.index) in self._open:
            self._given_up.add(operation.match)
            if status.phase == "waiting" and self._waits[news.rank].index == operation.index:
                status.enter("running", now)
                status.operation = None
        if operation.ended is not None:
            self._launched.pop((news.rank, operation.index), None)
        self._out.to_kernel(news)

    def _cut_off(self, news: PartFailed) -> None:
        """Whoever is still at their part of an operation that failed on one rank may wait for it for ever."""
        match = self._launched.pop((news.rank, news.index), None)
        told = shorten(news.error, SENTENCE, placeholder=" ...")
        for operation in match.operations if match is not None else ():
            still_at_it = self._launched.pop((operation.rank, operation.index), None) is not None
            if still_at_it and not self._ranks[operation.rank].gone:
                sentence = f"rank {news.rank} could not do its part of {operation.words}: {told}"
                self._out.to_rank(operation.rank, CutOff(self.id, operation.index, sentence))

    def _conclude(self, match: Match, now: int) -> None:
        """Lets the operations of a match go, or refuses them."""
        for operation in match.operations:
            rank, index = operation.rank, operation.index
            status = self._ranks[rank]
            self._open.pop((rank, index), None)
            if status.phase == "waiting" and self._waits[rank] is operation:
                status.enter("running", now)
                status.operation = None
            if status.gone:
                continue
            if match.sentence is not None:
                self._out.to_rank(rank, Refuse(self.id, index, match.sentence))
            else:
                self._launched[rank, index] = match
                source = match.source if operation.name == "recv" else None
                self._out.to_rank(rank, Launch(self.id, index, source))

    def _settle(self, now: int) -> None:
        """Ends the motion once no rank runs. One suspended by a signal does not: it cannot."""
        if any(status.goes_on and not status.suspended for status in self._ranks):
            return
        misfits = self._pending.misfits()
        for match in misfits:
            self._conclude(match, now)
        if misfits:
            return
        if self._motion is not None:
            self._motion_over(self._motion, now)
        elif self._late:
            self._tell_changed("came to rest", now)

    def _motion_over(self, motion: Motion, now: int) -> None:
        self._motion = None
        states, verdict = self._judged(now)
        self._late = any(status.goes_on for status in self._ranks)
        self._out.to_kernel(Settled(self.id, motion.id, states, verdict))

    def _tell_changed(self, what: str, now: int) -> None:
        self._late = False
        states, verdict = self._judged(now)
        self._out.to_kernel(Changed(self.id, what, states, verdict))

    def _judged(self, now: int) -> tuple[tuple[RankState, ...], str | None]:
        states, alone = self.states(now), self._pending.messages
        held = [
            replace(state, phase="running") if status.goes_on else state
            for state, status in zip(states, self._ranks, strict=True)
        ]
        verdict = deadlock(held, {s.rank: s.waiting_for for s in held if s.phase == "waiting"}, alone)
        if verdict is None and all(state.phase in ENDED for state in states):
            missed = [parts for parts in self._pending.open if parts[0].match not in self._given_up]
            verdict = next(filter(None, (left_alone(parts, states, alone) for parts in missed)), None)
        return states, verdict
