"""Operations that are posted, and done once all their ranks have posted matching ones: when stepping, and on threads.

Issuing never blocks: a Work is handed out at once, so that `isend; recv; wait` on both sides stays legal, and a rank
that waits does so in Python, where it can be freed.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Generic, TypeVar

from kit.probe.accelerator import Accelerator
from kit.probe.deferred import DeferredWork
from kit.probe.ledger import Entry, caller, wait_began
from kit.probe.operations import OperationCall
from kit.probe.run import Run, making_of_group
from kit.protocol.messages import Posted


class MismatchedOperation(RuntimeError):
    """The ranks of a group called operations that do not fit together."""


class PartnerFailed(RuntimeError):
    """Another rank of a group could not do its part of an operation."""


class PostedWork(DeferredWork):
    """One of them. Subclasses say how a rank waits (`stand`)."""

    def __init__(self, entry: Entry, call: OperationCall, accelerator: Accelerator) -> None:
        super().__init__(call.outputs, accelerator)
        self.entry = entry

    def wait(self, timeout: Any = None) -> bool:
        begin = wait_began(self.entry, caller(1))
        if not self.done.is_set():
            self.stand(begin, timeout.total_seconds() if timeout else None)
        self.entry.waits.append((begin, time.monotonic_ns()))
        if not self.done.is_set():
            self.gave_up(sentence := timed_out(self.entry.name, timeout))
            raise RuntimeError(sentence)
        self.was_waited_for()
        return super().wait()

    @abstractmethod
    def stand(self, since: int, limit: float | None) -> None:
        """Returns once it is done, or after `limit` seconds."""

    def gave_up(self, sentence: str) -> None:
        """It was waited for in vain, as long as the code would wait."""
        self.entry.error = sentence

    def was_waited_for(self) -> None:
        """Hook for subclasses."""

    def fail(self, error: BaseException) -> None:
        self.entry.error = f"{type(error).__name__}: {error}"
        super().fail(error)

    def refuse(self, sentence: str) -> None:
        self.fail(MismatchedOperation(sentence))


def timed_out(name: str, timeout: timedelta) -> str:
    """In gloo's words."""
    return f"Timed out waiting {timeout / timedelta(milliseconds=1):.0f}ms for {name} operation to complete"


PostedByRun = TypeVar("PostedByRun", bound=PostedWork)


class PostingRun(Run, Generic[PostedByRun]):
    """A run whose operations are posted. `works` are those not yet over, by index."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.works: dict[int, PostedByRun] = {}

    def post(self, work: PostedByRun) -> PostedByRun:
        self.works[work.entry.index] = work
        self.leave_if_told()  # after it is among the works, which an abort ends
        self.send(Posted(self.id, self.rank, work.entry.fact()))
        return work

    @contextmanager
    def joining(self, name: str, ranks: tuple[int, ...]) -> Iterator[None]:
        """The members of a new group meet here first: their rendezvous in C++ could not be freed."""
        call = making_of_group()
        self.meet(self.ledger.open(call, name, ranks, caller(1)), call).wait()
        yield

    @abstractmethod
    def meet(self, entry: Entry, call: OperationCall) -> PostedByRun:
        """Posts an operation that moves nothing."""

    def leave_if_told(self) -> None:
        """Hook for runs that can be aborted while they work."""

    def sender_found(self, work: PostedByRun, source: int) -> None:
        """A receive from any source has met its sender, as a global rank."""
        self.ledger.found_source(work.entry, source)
        work.source = work.entry.ranks.index(source)
