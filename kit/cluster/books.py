"""What the referee has written down of each rank."""

from __future__ import annotations

from dataclasses import dataclass, field

from kit.trace.facts import Failure, Operation, Phase, Place, RankState

ENDED = ("finished", "failed", "dead")


@dataclass
class Book:
    """One rank in the current run."""

    phase: Phase | None = None  # None: no part in the run
    since: int = 0
    place: Place | None = None
    operation: str | None = None
    waits_in: int | None = None  # index of the operation
    operations: int = 0
    stop: int = -1
    error: Failure | None = None
    detail: str = ""
    gone: bool = False  # the process has ended
    held_up: bool = False  # stopped by a signal
    open: dict[int, Operation] = field(default_factory=dict)  # posted, not launched

    def state(self, rank: int, now: int, last_line: int, waiting_for: tuple[int, ...]) -> RankState:
        """As a fact. last_line: what the rank's black box saw last, which is where a rank that runs now is."""
        assert self.phase is not None
        phase = "stopped" if self.held_up and self.phase not in ENDED else self.phase
        return RankState(
            rank=rank,
            phase=phase,
            place=at_line(self.place, last_line) if self.phase == "running" else self.place,
            operation=self.operation,
            waiting_for=waiting_for,
            since=self.since,
            now=now,
            error=self.error,
            stop=self.stop,
            operations=self.operations,
            detail=self.detail,
        )


def at_line(place: Place | None, line: int) -> Place | None:
    """The same function, at another line; unchanged when no line was seen."""
    return Place(place.file, line, place.function) if place is not None and line > 0 else place
