"""The coordinator: where every rank is, who waits for whom, when a motion is over.

A state machine. Messages come in, each with its time; orders to ranks and news for the kernel go out. All events of
all ranks pass through it in one order, which is what makes 'this rank waits' and 'this is a deadlock' facts and not
guesses. What is decided differs between a stepped and a recorded run, so each is a class (`stepped`, `recorded`).
"""

from __future__ import annotations

from kit.clusters.coordinator.recorded import RecordedRun
from kit.clusters.coordinator.run import CoordinatedRun, Delivery, Outbox, Sight
from kit.clusters.coordinator.status import RankStatus
from kit.clusters.coordinator.stepped import SteppedRun
from kit.protocol.messages import Begin, ProcessNews, RankLost, RankResumed, RankSuspended, Run, ToCoordinator
from kit.trace.facts import RankState


class Coordinator:
    """Of one generation of ranks. sight: for what ranks that cannot answer have left to see."""

    def __init__(self, world: int, sight: Sight) -> None:
        self._ranks = [RankStatus() for _ in range(world)]
        self._sight = sight
        self._out = Outbox()
        self._run: CoordinatedRun | None = None

    def hear(self, message: ToCoordinator, now: int) -> list[Delivery]:
        """What follows from a message. now: ns, of the clock that the ranks have."""
        match message:
            case Run():
                self._begin(message, now)
            case RankLost() | RankSuspended() | RankResumed():
                self._process_changed(message, now)
            case _:
                if self._run is not None and message.run == self._run.id:  # late news of an earlier run mean nothing
                    self._run.hear(message, now)
        return self._out.taken()

    def tick(self, now: int) -> list[Delivery]:
        """What follows from nothing but time; to be called when `next_deadline` has come."""
        if self._run is not None:
            self._run.tick(now)
        return self._out.taken()

    @property
    def next_deadline(self) -> int | None:
        return None if self._run is None else self._run.deadline

    def states(self, now: int) -> tuple[RankState, ...]:
        """Of the ranks that take part in the current run."""
        return () if self._run is None else self._run.states(now)

    def _begin(self, message: Run, now: int) -> None:
        task = message.task
        for rank, status in enumerate(self._ranks):
            self._ranks[rank] = status = status.anew()
            if rank < task.size:
                status.enter("dead" if status.gone else "running", now)
                if not status.gone:
                    self._out.to_rank(rank, Begin(task, message.arguments[rank]))
        kind = SteppedRun if task.mode == "step" else RecordedRun
        self._run = kind(message, self._ranks[: task.size], self._sight, self._out, now)

    def _process_changed(self, news: ProcessNews, now: int) -> None:
        status = self._ranks[news.rank]
        under_way = status.under_way
        match news:  # between two runs too: the next one begins with it
            case RankLost():
                status.gone, status.suspended, status.detail = True, False, news.detail
                if under_way:
                    status.place = status.at_line(self._sight.last_line(news.rank))
                    status.enter("dead", now)
            case RankSuspended():
                status.suspended, status.detail = True, news.detail
            case RankResumed():
                status.suspended, status.detail = False, ""
        if self._run is not None and under_way:
            self._run.process_changed(news, now)
