"""An operation of a stepped function, from posted to done."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from kit.probe.later import Later
from kit.probe.ledger import Entry, wait_began
from kit.probe.operations import Draft

if TYPE_CHECKING:
    from kit.probe.step import StepRun

Issue = Callable[..., dist.Work | None]


class MismatchedOperation(RuntimeError):
    """The ranks of a group called operations that do not fit together."""


class PostedWork(Later):
    """An operation that has been asked for; it runs once the host agent says so. `wait` blocks in Python until then."""

    def __init__(self, run: StepRun, entry: Entry, draft: Draft, launch: Issue) -> None:
        super().__init__(draft.outputs, run.device)
        self.entry = entry
        self.waited = False
        self.launched = False  # all its participants have asked for it
        self._run = run
        self._launch = launch
        self._ready = torch.cuda.Event() if run.device.type == "cuda" else None
        if self._ready is not None:
            self._ready.record()

    def run(self) -> None:
        """Does the real operation, in the launching thread, and waits for its end unless its links are throttled."""
        self.entry.began = time.monotonic_ns()
        try:
            if self._ready is None:
                work = self._go()
            else:
                with torch.cuda.stream(torch.cuda.Stream()):
                    self._ready.wait()
                    work = self._go()
                    torch.cuda.current_stream().synchronize()
        except Exception as error:  # what gloo or nccl raises reaches the rank that waits
            self.fail(error)
            return
        if isinstance(work, Later):
            work.after(lambda: self._ran(work.error))
        else:
            self._ran(None)

    def finish(self) -> None:
        super().finish()
        self._run.tell("operation", operation=self.entry.fact())

    def fail(self, error: BaseException) -> None:
        self.entry.error = f"{type(error).__name__}: {error}"
        super().fail(error)

    def wait(self, timeout: Any = None) -> bool:
        begin = wait_began(self.entry, sys._getframe(1))
        if not self.done.is_set():
            if threading.get_ident() == self._run.worker:  # while another thread waits, the learner's own may go on
                self.waited = True
                self._run.tell("wait", index=self.entry.index, since=begin, place=self._run.ledger.place())
            self.done.wait()
        self.entry.waits.append((begin, time.monotonic_ns()))
        self._run.tell("operation", operation=self.entry.fact())
        self._run.forget(self)
        if self.error is not None:
            raise self.error
        return True

    def _settle(self, future: torch.futures.Future[Any] | None) -> None:
        if future is not None and self.error is not None:
            self._run.fail_soon(self.error)
        super()._settle(future)

    def _go(self) -> dist.Work | None:
        work = self._launch() if self.source is None else self._launch(self.source)
        if work is not None and not isinstance(work, Later):
            work.wait()
        return work

    def _ran(self, error: BaseException | None) -> None:
        if error is not None:
            self.fail(error)
            return
        self.entry.ended = time.monotonic_ns()
        self.finish()
