"""A recorded function on ranks that are threads of one process.

As when stepping, operations are posted; doing one is copying within one memory (`kit.probe.threads.moves`). A rank that
waits gives its turn to the next (`kit.probe.threads.turns`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from copy import copy
from typing import Any, Protocol

import torch
import torch.distributed as dist

from kit.probe.backend import Launch, ObservedGroup
from kit.probe.ledger import Entry, caller
from kit.probe.operations import OperationCall
from kit.probe.posted import PostedWork, PostingRun
from kit.probe.threads.moves import hand_over, move
from kit.probe.threads.turns import Turns
from kit.protocol.messages import Waits


class ThreadRun(PostingRun["TurnWork"]):
    """One rank's part. `turns` says who may run."""

    def __init__(self, turns: Turns, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.turns = turns

    def start(self) -> None:
        torch.autograd.set_multithreading_enabled(False)  # backward and its hooks stay in the rank's own thread
        self.released = time.monotonic_ns()

    def end(self) -> None:
        """What it did is asked for when all have ended."""

    def perform(self, group: ObservedGroup, call: OperationCall, launch: Launch) -> dist.Work:
        called_with: Any = launch()
        entry = self.ledger.open(call, group.label, group.ranks, caller(2))
        rows = call.name == "all_to_all" and isinstance(called_with[0], torch.Tensor)
        splits = called_with[3] if rows else None  # output, input, rows from each rank, rows for each rank
        return self.post(TurnWork(self, entry, call, splits))

    def meet(self, entry: Entry, call: OperationCall) -> TurnWork:
        return self.post(TurnWork(self, entry, call, None))


class TurnWork(PostedWork):
    """A posted operation. splits: of an all_to_all on single tensors, the rows for each rank."""

    def __init__(self, run: ThreadRun, entry: Entry, call: OperationCall, splits: Any) -> None:
        super().__init__(entry, call, run.accelerator)
        self.call = call
        self.splits = splits
        self._run = run

    def stand(self, since: int, limit: float | None) -> None:  # their times are not real
        run = self._run
        run.send(Waits(run.id, run.rank, self.entry.index, since, run.ledger.place()))
        run.turns.sleep(run.rank, self.done.is_set)

    def is_completed(self) -> bool:
        """Whoever asks again and again must let the others work."""
        if not self.done.is_set():
            self._run.turns.pass_on(self._run.rank)
        return super().is_completed()

    def get_future(self) -> torch.futures.Future[Any]:
        """Handed out when it has come: code in C++ that waits for it would not give its turn away."""
        if not self.done.is_set():
            self.stand(time.monotonic_ns(), limit=None)
        return super().get_future()

    def finish(self) -> None:
        self._run.works.pop(self.entry.index, None)
        super().finish()
        self._run.turns.wake(self._run.rank)


class Part(Protocol):
    """Of one communication, what one rank asked for. splits: as in `TurnWork`."""

    entry: Entry
    call: OperationCall
    splits: Any

    def finish(self) -> None: ...

    def fail(self, error: BaseException) -> None: ...


def meet(works: Sequence[Part]) -> None:
    """Does what these works, all the parts of one communication, were asked for."""
    began = time.monotonic_ns()
    works = sorted(works, key=lambda work: work.entry.ranks.index(work.entry.rank))
    try:
        by_name = {work.call.name: work.call for work in works}
        if by_name.keys() == {"send", "recv"}:
            hand_over(by_name["send"], by_name["recv"])
        else:
            splits = [work.splits for work in works]
            move([work.call for work in works], None if splits[0] is None else splits)
    except Exception as error:  # what torch raises, for a dtype that cannot be added for instance, reaches all of them
        for work in works:
            work.fail(copy(error))  # each with the traceback of its own rank
        return
    ended = time.monotonic_ns()
    for work in works:
        work.entry.began, work.entry.ended = began, ended
        work.finish()
