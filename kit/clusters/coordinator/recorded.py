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
    Look,
    Looked,
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
    Where,
    WherePlease,
)
from kit.trace.facts import Operation, Place
from kit.trace.text import listed

ANSWERS = 1_000_000_000  # ns that ranks have to say where they are
STANDING = 1.0  # s after which a rank that does not move is said to stand still
STILL = "it stands still, and in no operation: it sleeps, or waits for a thread, a lock or a file"
LOADS = "it still loads the function and what that imports"
SILENT = "it does not answer, as in a long call of C"


class RecordedRun(CoordinatedRun):
    def __init__(self, order: Run, ranks: Sequence[RankStatus], sight: Sight, out: Outbox, now: int) -> None:
        super().__init__(order.task.run, ranks, sight, out)
        self._hangs = HangDetector()
        self._patience = order.patience
        self._judged_by: int | None = None  # when others have been waited for long enough
        self._concluded = False
        self._root = order.task.root_file
        self._asked: set[int] = set()  # ranks that have not said yet where they are
        self._told_by: int | None = None  # when it is said without them
        for rank, status in enumerate(ranks):
            if status.gone or status.suspended:  # nothing else would come of that rank
                self._conclude((died if status.gone else held_up)(rank, status.detail), now)
                return

    @property
    def deadline(self) -> int | None:
        return min(filter(None, (self._judged_by, self._told_by)), default=None)

    def tick(self, now: int) -> None:
        if self._judged_by is not None and now >= self._judged_by:
            self._judge(now)
        if self._told_by is not None and now >= self._told_by:
            self._tell_where(now)

    def hear(self, message: RunOrder | RunNews, now: int) -> None:
        match message:
            case Operations():
                self._ended(message)
            case Report():
                self._report(message)
            case Look():
                self._look(now)
            case Where():
                self._where(message, now)
            case _:
                super().hear(message, now)
        if isinstance(message, AtStop | Report | Unloaded):
            self._judge(now)

    def process_changed(self, news: ProcessNews, now: int) -> None:
        match news:
            case RankLost():
                last = [self._sight.last_operations(rank) for rank in range(len(self._ranks))]
                self._conclude(died(news.rank, news.detail, last), now, last[news.rank])
                for rank in self._undecided():  # what they did beside it may say why, and some will never end
                    self._out.to_rank(rank, ReportPlease(self.id))
            case RankSuspended():
                self._conclude(held_up(news.rank, news.detail), now)

    def last_line(self, rank: int) -> int:
        return 0  # a black box has the line of the last operation: see `_tell_where`

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

    def _look(self, now: int) -> None:
        if self._told_by is not None:  # the ranks are being asked: who asks again is not to wait longer
            return
        self._asked = {rank for rank, status in enumerate(self._ranks) if status.under_way}
        self._told_by = now + ANSWERS
        for rank in sorted(self._asked):
            self._out.to_rank(rank, WherePlease(self.id))

    def _where(self, news: Where, now: int) -> None:
        status = self._ranks[news.rank]
        self._asked.discard(news.rank)
        if not status.under_way:
            return
        if news.waiting is not None:
            status.wait_in(news.waiting.words, news.waiting.issued, news.place or status.place)
        else:
            self._hangs.goes_on(news.rank)
            if status.phase == "waiting":
                status.enter("running", now)
            status.operation, status.place = None, news.place or status.place
        status.remark = LOADS if news.loads else STILL if news.still > STANDING else ""
        if not self._asked and self._told_by is not None:
            self._tell_where(now)

    def _tell_where(self, now: int) -> None:
        """Of a rank that did not answer, what its black box has."""
        self._told_by = None
        for rank in self._asked:
            status, line = self._ranks[rank], self._sight.last_line(rank)
            if status.phase == "running":
                status.remark = SILENT
                status.place = Place(self._root, line, "") if line else status.place
        self._out.to_kernel(Looked(self.id, self.states(now)))

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
        undecided = self._undecided()
        if not undecided:
            self._conclude(sentence, now)
        elif now >= self._judged_by:
            who = f"{listed(undecided)} still {'runs' if len(undecided) == 1 else 'run'}"
            self._conclude(f"{sentence} {who[0].upper()}{who[1:]}.", now)

    def _conclude(self, sentence: str, now: int, last: tuple[Operation, ...] = ()) -> None:
        self._judged_by, self._concluded = None, True
        self._out.to_kernel(Verdict(self.id, sentence, self.states(now), last))
