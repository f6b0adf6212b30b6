"""What the coordination of stepped and of recorded runs has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kit.clusters.coordinator.status import RankStatus
from kit.protocol.messages import (
    Abort,
    AtStop,
    Ended,
    FromCoordinator,
    Leave,
    ProcessNews,
    RunNews,
    RunOrder,
    ToRank,
    Unloaded,
)
from kit.trace.facts import Operation, RankState


class Sight(Protocol):
    """What can be seen of a rank that cannot answer: one in a long C call, suspended by a signal, or dead."""

    def last_line(self, rank: int) -> int:
        """The last line that it was about to run; 0 when none was seen."""

    def last_operations(self, rank: int) -> tuple[Operation, ...]:
        """The operations that it entered last, in order, with what ranks compare and no times."""


@dataclass(frozen=True)
class ForKernel:
    message: FromCoordinator


@dataclass(frozen=True)
class ForRank:
    rank: int
    message: ToRank


Delivery = ForKernel | ForRank


@dataclass
class Outbox:
    """What is to be delivered, in order."""

    _deliveries: list[Delivery] = field(default_factory=list)

    def to_kernel(self, message: FromCoordinator) -> None:
        self._deliveries.append(ForKernel(message))

    def to_rank(self, rank: int, message: ToRank) -> None:
        self._deliveries.append(ForRank(rank, message))

    def taken(self) -> list[Delivery]:
        taken, self._deliveries = self._deliveries, []
        return taken


class CoordinatedRun(ABC):
    """One run, of the ranks whose status it is given."""

    def __init__(self, run: int, ranks: Sequence[RankStatus], sight: Sight, out: Outbox) -> None:
        self.id = run
        self._ranks = ranks
        self._sight = sight
        self._out = out

    def hear(self, message: RunOrder | RunNews, now: int) -> None:
        """What both kinds of runs hear; subclasses hear the rest."""
        match message:
            case Abort():
                for rank, status in enumerate(self._ranks):
                    if not status.gone:
                        self._out.to_rank(rank, Leave(message.run, message.reason))
                return
            case AtStop():
                self._ranks[message.rank].stand(message.phase, message.stop, message.error)
            case Unloaded():
                self._ranks[message.rank].enter("failed", message.time)
                self._ranks[message.rank].error = message.error
            case Ended():
                pass
            case _:
                raise AssertionError(f"a {type(self).__name__} hears no {message!r}")
        self._out.to_kernel(message)

    @abstractmethod
    def process_changed(self, news: ProcessNews, now: int) -> None:
        """The process of a rank that was under way ended, was suspended or resumed; its status says so already."""

    @abstractmethod
    def missing(self, rank: int) -> tuple[int, ...]:
        """Whom a waiting rank waits for."""

    def last_line(self, rank: int) -> int:
        """The last line that a running rank was seen at; 0 when it has said itself where it is."""
        return self._sight.last_line(rank)

    @property
    def deadline(self) -> int | None:
        """When `tick` has something to decide."""
        return None

    def tick(self, now: int) -> None:
        """Decides what time alone decides: without a deadline, nothing."""
        return

    def states(self, now: int) -> tuple[RankState, ...]:
        return tuple(
            status.state(
                rank,
                now,
                self.last_line(rank) if status.phase == "running" else 0,
                self.missing(rank) if status.phase == "waiting" else (),
            )
            for rank, status in enumerate(self._ranks)
        )
