"""What the coordinator knows of each rank."""

from __future__ import annotations

from dataclasses import dataclass

from kit.trace.facts import ENDED, Failure, Phase, Place, RankState, Stop


@dataclass
class RankStatus:
    """One rank: its process, and where it is in the current run."""

    gone: bool = False  # the process has ended
    suspended: bool = False  # by a signal
    detail: str = ""  # 'killed by SIGKILL'
    phase: Phase | None = None  # None: no part in the run
    since: int = 0
    place: Place | None = None
    operation: str | None = None
    operations: int = 0
    stop: int = -1
    error: Failure | None = None
    gives_up: bool = False  # it waits for some time only
    remark: str = ""  # of how it runs

    def anew(self) -> RankStatus:
        """The same process, before any run."""
        return RankStatus(self.gone, self.suspended, self.detail)

    @property
    def under_way(self) -> bool:
        """Whether it takes part in the run and has not ended it."""
        return self.phase is not None and self.phase not in ENDED

    def enter(self, phase: Phase, now: int) -> None:
        self.phase, self.since = phase, now

    @property
    def goes_on(self) -> bool:
        """Whether it does something, or will, with nobody's help."""
        return self.phase == "running" or self.phase == "waiting" and self.gives_up

    def wait_in(self, operation: str, since: int, place: Place | None, gives_up: bool = False) -> None:
        self.enter("waiting", since)
        self.operation, self.place, self.gives_up = operation, place, gives_up

    def stand(self, phase: Phase, stop: Stop, error: Failure | None) -> None:
        self.enter(phase, stop.time)
        self.stop, self.operation, self.operations, self.error = stop.index, stop.about_to, stop.operations, error
        if error is not None and error.place is not None:
            self.place = error.place
        elif stop.frames:
            self.place = stop.frames[-1].place

    def at_line(self, line: int) -> Place | None:
        """Where it is when `line` of the same function was the last that it ran; 0: none was seen."""
        place = self.place
        return Place(place.file, line, place.function) if place is not None and line > 0 else place

    def state(self, rank: int, now: int, last_line: int, waiting_for: tuple[int, ...]) -> RankState:
        """As a fact, which holds for a rank that takes part in the run."""
        assert self.phase is not None
        return RankState(
            rank=rank,
            phase="stopped" if self.suspended and self.under_way else self.phase,
            place=self.at_line(last_line) if self.phase == "running" else self.place,
            operation=self.operation,
            waiting_for=waiting_for,
            since=self.since,
            now=now,
            error=self.error,
            stop=self.stop,
            operations=self.operations,
            detail=self.detail or (self.remark if self.phase == "running" else ""),
        )
