"""Stepping: the function stops before lines and operations, and an operation runs once all its ranks have asked for it.

The coordinator says 'launch' when every participant has posted a matching entry; only then does the real group see it,
so raw gloo never meets a mismatch.
"""

from __future__ import annotations

import queue
import threading
import time
import warnings
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from kit.probe.backend import Launch, ObservedGroup
from kit.probe.blocked import BlockedDetector
from kit.probe.deferred import DeferredWork
from kit.probe.ledger import Entry, caller
from kit.probe.lines import Lines, Motion
from kit.probe.on_device import unlike_gloo
from kit.probe.operations import OperationCall
from kit.probe.posted import PartnerFailed, PostedWork, PostingRun
from kit.probe.run import RunAborted
from kit.protocol.messages import CutOff, Go, Operated, PartFailed, Refuse, Waits
from kit.protocol.messages import Launch as LaunchOrder
from kit.trace.facts import Place

FUTURE_WAIT = 0.15  # s blocked in C++ before a future that was handed out counts as waited for


class StepRun(PostingRun["SteppedWork"]):
    """One rank's part of a stepped function."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._turn = threading.Condition()
        self._motion = Motion("step")
        self._go = True
        self._obeyed = 0  # orders to go
        self._failed: BaseException | None = None  # to be raised in the learner's thread
        self._stack: tuple[FrameType, ...] = ()
        self._is_cut_off = False  # a partner failed, and a launching thread may wait for it for ever
        self._launches: queue.SimpleQueue[SteppedWork | None] = queue.SimpleQueue()
        self._in_hand: SteppedWork | None = None  # the launching thread does the real one of it
        self._taking = threading.Lock()  # held by whoever changes that
        self._launchers: list[threading.Thread] = []
        self._blocked = BlockedDetector(self.worker, self.native)
        self._lines = Lines(self.code, self.blackbox, lambda: self._motion, self._pause, self._returned)

    # -- in the learner's thread ---------------------------------------------------------------------------------

    def start(self) -> None:
        self._begin_to_launch()
        self.released = time.monotonic_ns()
        torch.autograd.set_multithreading_enabled(False)  # backward and its hooks stay here, where lines are seen
        self._lines.start()

    def end(self) -> None:
        self._lines.stop()
        self._stack, self._motion = (), Motion("step")

    def let_go(self) -> None:
        if self._is_cut_off:
            self.put_away()  # a rank that cannot does not leave the run, and is forked anew for the next one
        super().let_go()

    def put_away(self) -> None:
        """Before the next run: what was never waited for may have been launched after this one's end."""
        self._launches.put(None)
        for launching in self._launchers:
            launching.join()

    def perform(self, group: ObservedGroup, call: OperationCall, launch: Launch) -> dist.Work:
        asking = caller(2)
        if self._motion.how == "to_collective" and threading.get_ident() == self.worker and asking is not None:
            self._pause(asking, about_to=call.name)
        if group.native and (sentence := unlike_gloo(call)) is not None:
            warnings.warn(f"here this works, since stepping matches messages itself; but {sentence}", stacklevel=3)
        entry = self.ledger.open(call, group.label, group.ranks, asking)
        return self.post(SteppedWork(self, entry, call, self.over_links(group, call, launch)))

    def meet(self, entry: Entry, call: OperationCall) -> SteppedWork:
        return self.post(SteppedWork(self, entry, call, None))

    def tell_of(self, entry: Entry) -> None:
        self.send(Operated(self.id, self.rank, entry.fact()))

    def tell_wait(self, entry: Entry, since: int, place: Place | None = None, gives_up: bool = False) -> None:
        self.send(Waits(self.id, self.rank, entry.index, since, place, gives_up))

    def forget(self, work: SteppedWork) -> None:
        """A work that has been waited for is needed no more, nor are the tensors it holds."""
        work.entry.keep = None
        self.works.pop(work.entry.index, None)

    def fail_soon(self, error: BaseException) -> None:
        """For code in C++ that waits on a future: it cannot be told, so the learner's own fails at its next line."""
        self._failed = error
        self._motion = Motion("into")

    def _pause(self, frame: FrameType, about_to: str | None = None) -> None:
        self.leave_if_told()
        self._stack = tuple(self.code.stack(frame))
        with self._turn:
            self._go, obeyed = False, self._obeyed
        self.report_stop("paused", self.capture.frames(frame), about_to, obeyed=obeyed)
        with self._turn:
            while not self._go and self.aborted is None:
                self._turn.wait()
        self.released = time.monotonic_ns()  # also of one that is told to leave: while it stood it did not compute
        self.leave_if_told()

    def leave_if_told(self) -> None:
        if self.aborted is not None:
            raise RunAborted(self.aborted)
        if threading.get_ident() != self.worker:  # another thread would swallow what the learner's own is to raise
            return
        error, self._failed = self._failed, None
        if error is not None:
            raise error

    def _returned(self, frame: FrameType) -> None:
        self.leave_if_told()
        self._last_frames = self.capture.frames(frame)

    # -- in the control thread -----------------------------------------------------------------------------------

    def go(self, order: Go) -> None:
        with self._turn:
            self._motion = Motion(order.how, order.line, order.file, self._stack)
            self._go = True
            self._obeyed += 1
            self._turn.notify_all()

    def launch(self, order: LaunchOrder) -> None:
        if self.aborted is not None:  # all ranks hear the coordinator in one order: no partner launches it either
            return
        work = self.works[order.index]
        if order.source is not None:
            self.sender_found(work, order.source)
        work.launched = True
        self._launches.put(work)

    def refuse(self, order: Refuse) -> None:
        if self.aborted is None:
            self.works[order.index].refuse(order.sentence)

    def cut_off(self, order: CutOff) -> None:
        work = self.works.get(order.index)
        if work is not None:  # else it has been waited for
            self._is_cut_off = True
            work.cut_off(order.sentence)
            with self._taking:
                stuck, self._in_hand = self._in_hand is work, None if self._in_hand is work else self._in_hand
            if stuck:
                self._begin_to_launch()

    def abort(self, reason: str) -> None:
        super().abort(reason)
        self._motion = Motion("into")  # a rank that runs on ends at its next line
        for work in list(self.works.values()):
            if not work.launched and not work.done.is_set():  # a launched one ends: its partners launch theirs
                work.fail(RunAborted(reason))
        with self._turn:
            self._go = True
            self._turn.notify_all()

    def tick(self) -> None:
        """A wait inside C++ (DDP's reducer on a future, or on one that is chained to it) tells nobody: it shows from
        outside the thread.
        """
        open_ones = [w for w in list(self.works.values()) if not w.done.is_set() and not w.waited]
        awaited = [w for w in open_ones if w.future is not None or w.by_another]
        if awaited and self._blocked.seconds() > FUTURE_WAIT:
            awaited[0].waited = True
            self.tell_wait(awaited[0].entry, time.monotonic_ns())

    # -- in the launching thread ---------------------------------------------------------------------------------

    def _begin_to_launch(self) -> None:
        """Again where a thread is stuck: what comes next is of ranks that all live, and must not wait for the dead."""
        self._launchers.append(threading.Thread(target=self._launch_in_order, name="launches", daemon=True))
        self._launchers[-1].start()

    @torch.no_grad()  # torch's own operators call their group beneath autograd; gloo copies into outputs that need it
    def _launch_in_order(self) -> None:
        self.accelerator.take()
        while (work := self._launches.get()) is not None:
            if work.done.is_set():
                continue  # it was cut off while it stood behind another
            with self._taking:
                self._in_hand = work
            work.run()
            with self._taking:
                if self._in_hand is not work:
                    return  # it was cut off, and another thread goes on
                self._in_hand = None


class SteppedWork(PostedWork):
    """A posted operation; `launch` does the real one, if it moves anything."""

    def __init__(self, run: StepRun, entry: Entry, call: OperationCall, launch: Launch | None) -> None:
        super().__init__(entry, call, run.accelerator)
        entry.keep = self
        self.waited = False  # for by the learner's own thread, which has told so
        self.by_another = False  # another thread waits for it
        self.launched = False  # all its participants have asked for it
        self._run = run
        self._launch = launch
        self._ready = run.accelerator.moment()  # what it reads is written by then
        self._over = threading.Lock()  # taken by whoever ends it: itself, or a partner's failure

    def run(self) -> None:
        """Does the real operation, in the launching thread, and waits for its end unless its links are throttled."""
        self.entry.began = time.monotonic_ns()
        try:
            with self._run.accelerator.aside():
                self._ready.hold()
                work = self._real()
                self._run.accelerator.moment().synchronize()
        except Exception as error:  # what gloo or nccl raises reaches the rank that waits, and those who wait for it
            self._failed(error)
            return
        if isinstance(work, DeferredWork):
            work.after(lambda: self._ran(None) if work.error is None else self._failed(work.error))
        else:
            self._ran(None)

    def cut_off(self, sentence: str) -> None:
        """Whoever waits for it is freed; the launching thread may stay in the real one as long as the rank lives."""
        self._ran(PartnerFailed(sentence))

    def finish(self) -> None:
        super().finish()
        self._run.tell_of(self.entry)

    def stand(self, since: int, limit: float | None) -> None:
        if threading.get_ident() == self._run.worker:  # while another thread waits, the learner's own may go on
            self.waited = True
            self._run.tell_wait(self.entry, since, self._run.ledger.place(), gives_up=limit is not None)
        else:
            self.by_another = True
        self.done.wait(limit)

    def gave_up(self, sentence: str) -> None:
        super().gave_up(sentence)
        self.waited = self.by_another = False
        self._run.tell_of(self.entry)

    def was_waited_for(self) -> None:
        self._run.tell_of(self.entry)
        self._run.forget(self)

    def _comes(self, future: torch.futures.Future[Any] | None) -> None:
        """In a thread of its own: what is chained to a future may wait for operations that are launched meanwhile."""
        if future is None:
            return
        threading.Thread(target=self._settle_here, args=(future,), name="future", daemon=True).start()

    @torch.no_grad()
    def _settle_here(self, future: torch.futures.Future[Any]) -> None:
        self._run.accelerator.take()
        self._settle(future)

    def _settle(self, future: torch.futures.Future[Any] | None) -> None:
        """Also of a future that is asked for only when the operation has failed already."""
        if future is not None and self.error is not None and not self._settled:
            self._run.fail_soon(self.error)
        super()._settle(future)

    def _real(self) -> dist.Work | None:
        if self._launch is None:
            return None
        work = self._launch() if self.source is None else self._launch(self.source)
        if not isinstance(work, DeferredWork):
            work.wait()
        return work

    def _failed(self, error: BaseException) -> None:
        self._run.send(PartFailed(self._run.id, self._run.rank, self.entry.index, f"{type(error).__name__}: {error}"))
        self._ran(error)

    def _ran(self, error: BaseException | None) -> None:
        if not self._over.acquire(blocking=False):
            return
        if error is not None:
            self.fail(error)
            return
        self.entry.ended = time.monotonic_ns()
        self.finish()
