"""Stepping: the function stops before lines and operations, and an operation runs once all its ranks have asked for it.

Issuing an operation never blocks: it is posted to the host agent and a Work is handed out at once, so that
`isend; recv; wait` on both sides stays legal. The agent says 'launch' when every participant has posted a matching
entry;
only then does the real group see it, so raw gloo never meets a mismatch, and a rank that waits does so in Python,
where it can be freed.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from kit.probe.asleep import Sleep
from kit.probe.backend import Launch, ObservedGroup
from kit.probe.ledger import Entry
from kit.probe.lines import Lines, Motion
from kit.probe.operations import Draft
from kit.probe.posted import Issue, MismatchedOperation, PostedWork
from kit.probe.run import Run, RunAborted, naming_of_group
from kit.probe.wire import Message

FUTURE_WAIT = 0.15  # s asleep in C++ before a future that was handed out counts as waited for


class StepRun(Run):
    """One rank's part of a stepped function."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._turn = threading.Condition()
        self._motion = Motion("step")
        self._go = True
        self._failed: BaseException | None = None  # to be raised in the learner's thread
        self._stack: tuple[FrameType, ...] = ()
        self._works: dict[int, PostedWork] = {}
        self._launches: queue.SimpleQueue[PostedWork | None] = queue.SimpleQueue()
        self._sleep = Sleep(self.worker, self.native)
        self._lines = Lines(self.code, self.blackbox, lambda: self._motion, self._pause, self._returned)

    # -- in the learner's thread ---------------------------------------------------------------------------------

    def start(self) -> None:
        threading.Thread(target=self._launch_in_order, name="launches", daemon=True).start()
        self.released = time.monotonic_ns()
        torch.autograd.set_multithreading_enabled(
            False
        )  # backward and its hooks stay in this thread, where lines are seen
        self._lines.start()

    def end(self) -> None:
        self._lines.stop()
        self._launches.put(None)

    def perform(self, group: ObservedGroup, draft: Draft, launch: Launch) -> dist.Work:
        if self._motion.how == "to_collective" and threading.get_ident() == self.worker:
            self._pause(sys._getframe(2), about_to=draft.name)
        entry = self.ledger.open(draft, group.label, group.ranks, sys._getframe(2))
        return self._post(entry, draft, self.over_links(group, draft, launch))

    @contextmanager
    def joining(self, name: str, ranks: tuple[int, ...]) -> Iterator[None]:
        """The members of a new group meet here first: their rendezvous in C++ could not be freed."""
        draft = Draft(naming_of_group(), [], [])
        self._post(self.ledger.open(draft, name, ranks, sys._getframe(1)), draft, lambda: None).wait()
        yield

    def _post(self, entry: Entry, draft: Draft, launch: Issue) -> PostedWork:
        work = PostedWork(self, entry, draft, launch)
        entry.keep = work
        self._works[entry.index] = work
        self._leave_if_told()
        self.tell("post", operation=entry.fact())
        return work

    def forget(self, work: PostedWork) -> None:
        """A work that has been waited for is needed no more, nor are the tensors it holds."""
        work.entry.keep = None
        self._works.pop(work.entry.index, None)

    def _pause(self, frame: FrameType, about_to: str | None = None) -> None:
        self._leave_if_told()
        self._stack = tuple(self.code.stack(frame))
        with self._turn:
            self._go = False
        self.report_stop("paused", self.capture.frames(frame), about_to)
        with self._turn:
            while not self._go and self.aborted is None:
                self._turn.wait()
        self._leave_if_told()
        self.released = time.monotonic_ns()

    def _leave_if_told(self) -> None:
        if self.aborted is not None:
            raise RunAborted(self.aborted)
        error, self._failed = self._failed, None
        if error is not None:
            raise error

    def fail_soon(self, error: BaseException) -> None:
        """For code in C++ that waits on a future: it cannot be told, so the learner's own fails at its next line."""
        self._failed = error
        self._motion = Motion("into")

    def _returned(self, frame: FrameType) -> None:
        self._leave_if_told()
        self._last_frames = self.capture.frames(frame)

    # -- in the control thread -----------------------------------------------------------------------------------

    def move(self, message: Message) -> None:
        with self._turn:
            self._motion = Motion(message["how"], message.get("line", 0), message.get("file"), self._stack)
            self._go = True
            self._turn.notify_all()

    def launch(self, message: Message) -> None:
        if self.aborted is not None:  # the agent's orders come to all ranks in one order: no partner launches it either
            return
        work = self._works[message["index"]]
        source = message.get("source")
        if source is not None:
            self.ledger.found_source(work.entry, source)
            work.source = work.entry.ranks.index(source)
        work.launched = True
        self._launches.put(work)

    def refuse(self, message: Message) -> None:
        if self.aborted is None:
            self._works[message["index"]].fail(MismatchedOperation(message["sentence"]))

    def abort(self, reason: str) -> None:
        super().abort(reason)
        self._motion = Motion("into")  # a rank that runs on ends at its next line
        for work in list(self._works.values()):
            if not work.launched and not work.done.is_set():  # a launched one ends: its partners launch theirs
                work.fail(RunAborted(reason))
        with self._turn:
            self._go = True
            self._turn.notify_all()

    def tick(self) -> None:
        """A wait inside C++ (DDP's reducer on a future) tells nobody: see it from the thread's own stillness."""
        handed_out = [
            w for w in list(self._works.values()) if w.future is not None and not w.done.is_set() and not w.waited
        ]
        if handed_out and self._sleep.seconds() > FUTURE_WAIT:
            handed_out[0].waited = True
            self.tell("wait", index=handed_out[0].entry.index, since=time.monotonic_ns())

    # -- in the launching thread ---------------------------------------------------------------------------------

    @torch.no_grad()  # torch's own operators call their group beneath autograd; gloo copies into outputs that need it
    def _launch_in_order(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        while (work := self._launches.get()) is not None:
            work.run()
