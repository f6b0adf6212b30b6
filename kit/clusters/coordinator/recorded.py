"""Coordinating a recorded run: ranks run at full speed, and one that waits for long has all others asked.

As in a stepped run, it is judged once no rank can go on, so that a sentence speaks of all whom it is about. A rank that
computes for long, or cannot answer, is waited for no longer than the run's patience, from when there is something to
say.
"""

from __future__ import annotations

from collections.abc import Sequence

from kit.clusters.coordinator.hangs import HangDetector, died, held_up
from kit.clusters.coordinator.run import CoordinatedRun, Outbox, Sight
from kit.clusters.coordinator.status import RankStatus
from kit.protocol.messages import (
    AtStop,
    Operations,
    ProcessNews,
    RankLost,
    RankSuspended,
    Report,
    ReportPlease,
    Run,
    RunNews,
    RunOrder,
    Unloaded,
    Verdict,
)
from kit.trace.facts import Operation


class RecordedRun(CoordinatedRun):
    def __init__(self, order: Run, ranks: Sequence[RankStatus], sight: Sight, out: Outbox, now: int) -> None:
        super().__init__(order.task.run, ranks, sight, out)
        self._hangs = HangDetector()
        self._patience = order.patience
        self._judged_by: int | None = None  # when others have been waited for long enough
        self._concluded = False
        for rank, status in enumerate(ranks):
            if status.gone or status.suspended:  # nothing else would come of that rank
                self._conclude((died if status.gone else held_up)(rank, status.detail), now)
                return

    @property
    def deadline(self) -> int | None:
        return self._judged_by

    def tick(self, now: int) -> None:
        if self._judged_by is not None and now >= self._judged_by:
            self._judge(now)

    def hear(self, message: RunOrder | RunNews, now: int) -> None:
        match message:
            case Operations():
                self._ended(message)
            case Report():
                self._report(message)
            case _:
                super().hear(message, now)
        if isinstance(message, AtStop | Report | Unloaded):
            self._judge(now)

    def process_changed(self, news: ProcessNews, now: int) -> None:
        match news:
            case RankLost():
                last = [self._sight.last_operation(rank) for rank in range(len(self._ranks))]
                self._conclude(died(news.rank, news.detail, last), now, last[news.rank])
            case RankSuspended():
                self._conclude(held_up(news.rank, news.detail), now)

    def missing(self, rank: int) -> tuple[int, ...]:
        return self._hangs.missing(rank)

    def _ended(self, news: Operations) -> None:
        self._hangs.hear_all(news.rank, news.operations)
        if self._ranks[news.rank].phase == "waiting":  # what it waited in has ended after all; its stop is on the way
            self._ranks[news.rank].phase = "running"
        self._out.to_kernel(news)

    def _report(self, news: Report) -> None:
        """The first that waits for long makes all the others report too."""
        if not self._hangs.hear(news.rank, news.operations, news.waiting):
            return
        status = self._ranks[news.rank]
        if status.phase in ("running", "waiting"):
            place = news.place or status.place
            if news.waiting is None:
                status.phase, status.operation, status.place = "running", None, place
            else:
                operation = news.operations[news.waiting]
                status.wait_in(operation.words, operation.issued, place)
        self._out.to_kernel(news)
        if news.waiting is not None and not news.answer:
            for rank in self._undecided():
                self._out.to_rank(rank, ReportPlease(self.id))

    def _undecided(self) -> list[int]:
        """Who may still come to what others wait in."""
        return [r for r, status in enumerate(self._ranks) if status.under_way and not self._hangs.is_held(r)]

    def _judge(self, now: int) -> None:
        if self._concluded:
            return
        sentence = self._hangs.verdict(self.states(now))
        if sentence is None:
            self._judged_by = None
            return
        if self._judged_by is None:
            self._judged_by = now + self._patience
        if now >= self._judged_by or not self._undecided():
            self._conclude(sentence, now)

    def _conclude(self, sentence: str, now: int, last: Operation | None = None) -> None:
        self._judged_by, self._concluded = None, True
        self._out.to_kernel(Verdict(self.id, sentence, self.states(now), last))
