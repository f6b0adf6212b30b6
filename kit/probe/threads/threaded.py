"""A recorded function on ranks that are threads of one process.

As when stepping, an operation is posted and done once all its ranks have posted fitting ones; here the doing is copying
within one memory (`kit.probe.threads.moves`). A rank that waits gives its turn to the next (`kit.probe.threads.turns`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

import torch
import torch.distributed as dist

from kit.probe.backend import Launch, ObservedGroup
from kit.probe.later import Later
from kit.probe.ledger import Entry, wait_began
from kit.probe.operations import Draft
from kit.probe.posted import MismatchedOperation
from kit.probe.run import Run, naming_of_group
from kit.probe.threads.moves import hand_over, move
from kit.probe.threads.turns import Turns
from kit.probe.wire import Message


class Unsent:
    """Stands where a real group would, and hands back what it was called with: nothing is sent."""

    def __getattr__(self, method: str) -> Any:
        return lambda *arguments, **options: arguments

    def _get_backend(self, device: torch.device) -> Unsent:
        return self


class ThreadRun(Run):
    """One rank's part. `turns` says who may run."""

    def __init__(self, turns: Turns, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.turns = turns
        self.works: dict[int, TurnWork] = {}

    def start(self) -> None:
        torch.autograd.set_multithreading_enabled(False)  # backward and its hooks stay in the rank's own thread
        self.released = time.monotonic_ns()

    def end(self) -> None:
        """What it did is asked for when all have ended."""

    def perform(self, group: ObservedGroup, draft: Draft, launch: Launch) -> dist.Work:
        called_with: Any = launch()
        entry = self.ledger.open(draft, group.label, group.ranks, sys._getframe(2))
        rows = draft.name == "all_to_all" and isinstance(called_with[0], torch.Tensor)
        splits = called_with[3] if rows else None  # output, input, rows from each rank, rows for each rank
        return self._post(entry, draft, splits)

    @contextmanager
    def joining(self, name: str, ranks: tuple[int, ...]) -> Iterator[None]:
        draft = Draft(naming_of_group(), [], [])
        self._post(self.ledger.open(draft, name, ranks, sys._getframe(1)), draft).wait()
        yield

    def _post(self, entry: Entry, draft: Draft, splits: Any = None) -> TurnWork:
        work = TurnWork(self, entry, draft, splits)
        self.works[entry.index] = work
        self.tell("post", operation=entry.fact())
        return work


class TurnWork(Later):
    """An operation that has been asked for."""

    def __init__(self, run: ThreadRun, entry: Entry, draft: Draft, splits: Any) -> None:
        super().__init__(draft.outputs, run.device)
        self.entry = entry
        self.draft = draft
        self.splits = splits
        self._run = run

    def wait(self, timeout: Any = None) -> bool:
        begin = wait_began(self.entry, sys._getframe(1))
        self._stand(begin)
        self.entry.waits.append((begin, time.monotonic_ns()))
        if self.error is not None:
            raise self.error
        return True

    def is_completed(self) -> bool:
        """Whoever asks again and again must let the others work."""
        if not self.done.is_set():
            self._run.turns.pass_on(self._run.rank)
        return super().is_completed()

    def get_future(self) -> torch.futures.Future[Any]:
        """Handed out when it has come: code in C++ that waits for it would not give its turn away."""
        self._stand(time.monotonic_ns())
        return super().get_future()

    def finish(self) -> None:
        self._run.works.pop(self.entry.index, None)
        super().finish()
        self._run.turns.wake(self._run.rank)

    def fail(self, error: BaseException) -> None:
        self.entry.error = f"{type(error).__name__}: {error}"
        super().fail(error)

    def came_from(self, source: int) -> None:
        """Of a receive from any source."""
        self._run.ledger.found_source(self.entry, source)
        self.source = self.entry.ranks.index(source)

    def _stand(self, since: int) -> None:
        if not self.done.is_set():
            self._run.tell("wait", index=self.entry.index, since=since, place=self._run.ledger.place())
            self._run.turns.sleep(self._run.rank, self.done.is_set)


def meet(works: list[TurnWork]) -> None:
    """Does what these works, all the parts of one communication, were asked for."""
    began = time.monotonic_ns()
    works = sorted(works, key=lambda work: work.entry.ranks.index(work.entry.rank))
    try:
        by_name = {work.draft.name: work.draft for work in works}
        if by_name.keys() == {"send", "recv"}:
            hand_over(by_name["send"], by_name["recv"])
        else:
            splits = [work.splits for work in works]
            move([work.draft for work in works], None if splits[0] is None else splits)
    except Exception as error:  # what torch raises, for a dtype that cannot be added for instance, reaches all of them
        for work in works:
            work.fail(copy(error))  # each with the traceback of its own rank
        return
    ended = time.monotonic_ns()
    for work in works:
        work.entry.began, work.entry.ended = began, ended
        work.finish()


def refused(work: TurnWork, order: Message) -> None:
    work.fail(MismatchedOperation(order["sentence"]))
