"""Recording: the function runs at full speed, operations are noted as they pass and compared afterwards."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from kit.probe.accelerator import Accelerator, Moment
from kit.probe.backend import Launch, ObservedGroup
from kit.probe.blocked import BlockedDetector, SpinningDetector
from kit.probe.ledger import Entry, caller, wait_began
from kit.probe.on_device import DeviceWork, unlike_gloo
from kit.probe.operations import OperationCall
from kit.probe.run import Run, making_of_group
from kit.probe.stretches import Stretches
from kit.probe.torch_private import at_end_of_backward, backward_number
from kit.probe.work import OwnWork
from kit.protocol.messages import Operations, Report, Where
from kit.trace.facts import Place

PATIENCE = 0.5  # s in one wait before the coordinator is asked whether it can end
REPEAT = 0.5  # s between two such questions
BACKWARD = "_engine_run_backward"  # the frame of torch's Python that stands under whatever C++ does in a backward pass
LAYINGS = 5  # of a device's clock beside the host's, of which the closest counts: ten or twenty µs each
NAP = 2e-4  # s between two looks at a device that is not done when the function is
STANDS = 0.05  # s after which a rank that is asked says that it waits


class RecordRun(Run):
    """One rank's part of a recorded function."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.waiting: tuple[Entry, float] | None = None
        self._blocked = BlockedDetector(self.worker, self.native)
        self._standstill = BlockedDetector(self.worker, self.native, within="")
        self.gives_up = False  # it waits for some time only
        self._asked = 0.0
        self._issued = -1
        self._promised: list[Entry] = []
        self._noted_after = -1  # the backward pass at whose end promises will be looked at
        self._note_last = partial(at_end_of_backward, self.note_promises)  # after what is put there meanwhile
        self.clock = DeviceClock(self.accelerator) if self.accelerator.runs_ahead else None
        self._spinning = SpinningDetector(self.worker, self.native)
        self._stretches = Stretches(self.clock)

    def start(self) -> None:
        if self.clock is not None:
            self.clock.start()
        self._stretches.start()
        self.released = time.monotonic_ns()

    def end(self) -> None:
        self._stretches.stop()
        if self.clock is not None:
            self._device_ends(self.clock)
        self.note_promises()
        self.settle()
        self.send(self.operations())

    def settle(self) -> None:
        """Hook: the ends of all operations are known."""

    def operations(self) -> Operations:
        """All that is told of the run's operations when it has ended."""
        stretches = self._stretches.facts if self.aborted is None else ()  # a device may never come to their ends
        error = 0 if self.clock is None else self.clock.error
        return Operations(self.id, self.rank, self.ledger.facts(), stretches=stretches, clock_error=error)

    def perform(self, group: ObservedGroup, call: OperationCall, launch: Launch) -> dist.Work:
        if self._promised:
            self.note_promises()
        if group.native and (sentence := unlike_gloo(call)) is not None:
            raise ValueError(sentence)
        try:  # as `caller` does, without its price
            frame = sys._getframe(2)
        except ValueError:
            frame = None
        entry = self.ledger.open(call, group.label, group.ranks, frame)
        if self.throttle is not None:
            launch = self.held_back(entry, group, call, launch)
        elif self.clock is None and frame is not None and frame.f_code.co_name == BACKWARD and _is_bucket(call):
            bare = launch()  # the reducer takes the future and never waits for the work
            self.promise(entry, bare.get_future())
            return bare
        work = RecordedWork(self, entry, launch()) if self.clock is None else self._launched(self.clock, entry, launch)
        entry.keep = work
        return work

    def _launched(self, clock: DeviceClock, entry: Entry, launch: Launch) -> RecordedWork:
        """A communicator that is connected only now holds the host until all its ranks come."""
        mine = threading.get_ident() == self.worker
        self.waiting = (entry, entry.issued * 1e-9) if mine else self.waiting
        try:
            work = launch()
        finally:
            self.waiting = None if mine else self.waiting
        if not isinstance(work, DeviceWork):
            return RecordedWork(self, entry, work)
        clock.follow(entry, work)
        return RecordedOnDevice(self, entry, work)

    def _device_ends(self, clock: DeviceClock) -> None:
        """Waits for all that was launched, and can be asked meanwhile what for."""
        while (under_way := clock.oldest(issue=True)) is not None and self.aborted is None:
            if self.waiting is None or self.waiting[0] is not under_way:
                self.waiting = (under_way, time.monotonic())
            time.sleep(NAP)
        self.waiting = None
        if self.aborted is None:
            self.accelerator.synchronize()  # what was computed after the last operation, too
            clock.end()
        clock.read()

    def held_back(self, entry: Entry, group: ObservedGroup, call: OperationCall, launch: Launch) -> Launch:
        """`launch` over throttled links."""
        return self.over_links(group, call, launch, entry.issued)

    def promise(self, entry: Entry, future: torch.futures.Future[Any]) -> None:
        """A future was handed out. Whether it has come is seen when this rank's own code next passes by here.

        A callback would know at once, but it would run in the library's thread and make it wait for the interpreter,
        which costs a loop of DistributedDataParallel several per cent where ranks share processors. In a backward pass
        its end is such a moment: the callback put there runs after the one that has waited for the buckets.
        """
        entry.future = future
        self._promised.append(entry)
        backward = backward_number()
        if backward not in (-1, self._noted_after):
            self._noted_after = backward
            at_end_of_backward(self._note_last)

    def note_promises(self) -> None:
        still = []
        for entry in self._promised:
            if entry.future is not None and not entry.future.done():
                still.append(entry)
                continue
            if entry.ended is None:
                entry.ended = time.monotonic_ns()
            entry.future = entry.keep = None
        self._promised = still

    @contextmanager
    def joining(self, name: str, ranks: tuple[int, ...]) -> Iterator[None]:
        entry = self.ledger.open(making_of_group(), name, ranks, caller(1))
        self.waiting = (entry, entry.issued * 1e-9)
        try:
            yield
        finally:
            self.waiting = None
            entry.ended = time.monotonic_ns()
            entry.waits.append((entry.issued, entry.ended))

    def wait_within(self, timeout: timedelta, entry: Entry, work: dist.Work) -> bool:
        """A wait that ends by itself, so that nobody needs to be asked whether it can."""
        self.gives_up = bool(timeout)
        try:
            return work.wait(timeout)
        except RuntimeError as error:  # gloo's connection is of no use afterwards
            entry.error, self.world_is_whole = str(error), False
            raise
        finally:
            self.gives_up = False

    def tick(self) -> None:
        """In the control thread: asks the coordinator about a wait that has become long."""
        issued = len(self.ledger.entries)
        if issued != self._issued:  # it gets on: nothing to look at, and looking costs the learner's thread time
            self._issued = issued
            return
        now = time.monotonic()
        waiting = self.long_wait(now)
        if waiting is not None and now - self._asked > REPEAT:
            self._asked = now
            self._report(waiting, answer=False)

    def long_wait(self, now: float, patience: float = PATIENCE) -> Entry | None:
        """The operation this rank has stood in for longer than `patience` seconds."""
        waiting = self.waiting
        if self.gives_up:
            return None
        if waiting is not None:
            return waiting[0] if now - waiting[1] > patience else None
        if self.clock is not None and max(self._blocked.seconds(), self._spinning.seconds()) > patience:
            return self.clock.oldest()
        if self._blocked.seconds() > patience:
            return next((e for e in self.ledger.entries if e.ended is None), None)
        if self._standstill.seconds() > patience:  # c10d's own futures wait without a frame of torch's
            return next((e for e in self.ledger.entries if e.future is not None and not e.future.done()), None)
        return None

    def report(self) -> None:
        """Tells the coordinator, which asks, every operation issued so far and the one that is waited for."""
        self._report(self.long_wait(time.monotonic(), STANDS), answer=True)

    def tell_where(self) -> None:
        waiting = self.long_wait(time.monotonic(), STANDS)
        fact = None if waiting is None else waiting.fact()
        self.send(Where(self.id, self.rank, self._place(waiting), fact, self._standstill.seconds()))

    def _report(self, waiting: Entry | None, answer: bool) -> None:
        index = waiting.index if waiting else None
        facts = self.ledger.facts()
        self.send(Report(self.id, self.rank, facts, index, self._place(waiting), answer))

    def _place(self, waiting: Entry | None) -> Place | None:
        """Where the rank stands. A host that waits for its device has left the line that asked for the operation."""
        return self.ledger.place() if waiting is None or self.clock is None else waiting.place


class RecordedWork(OwnWork):
    """The real Work, with the moments noted at which it was waited for and done."""

    def __init__(self, run: RecordRun, entry: Entry, work: dist.Work) -> None:
        super().__init__()
        self._run = run
        self._entry = entry
        self._work = work
        self._future: torch.futures.Future[Any] | None = None

    def wait(self, timeout: Any = None) -> bool:
        entry, run = self._entry, self._run
        try:
            asking = sys._getframe(1)
        except ValueError:
            asking = None
        begin = wait_began(entry, asking)
        mine = threading.get_ident() == run.worker
        if mine:
            run.waiting = (entry, begin * 1e-9)
        try:
            return self._work.wait() if timeout is None else run.wait_within(timeout, entry, self._work)
        finally:
            self.waited(begin)
            if mine:
                run.waiting = None
            entry.keep = None

    def waited(self, begin: int) -> None:
        """A wait that began then has come back."""
        entry, now = self._entry, time.monotonic_ns()
        entry.waits.append((begin, now))
        if entry.ended is None:
            entry.ended = now
        if entry.peer == -1:
            self._run.ledger.found_source(entry, entry.ranks[self._work._source_rank()])

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        """Code that asks until it is has waited, too."""
        done = self._work.is_completed()
        if done:
            self.seen_done()
        return done

    def seen_done(self) -> None:
        if self._entry.ended is None:
            self._entry.ended = time.monotonic_ns()

    def is_success(self) -> bool:
        return self._work.is_success()

    def exception(self) -> Any:
        return self._work.exception()

    def result(self) -> Any:
        return self._work.result()

    def source_rank(self) -> int:
        return self._work._source_rank()

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future[Any]:
        if self._future is None:
            self._future = self._work.get_future()
            self._run.promise(self._entry, self._future)
        return self._future


class RecordedOnDevice(RecordedWork):
    """Of an operation that only the device knows the end of: the run's clock tells it when the run is over.

    Who waits for a message stands until it has come: what would be issued meanwhile stands behind it on the device, so
    a circle of ranks that wait for each other would look as if all had come.
    """

    def waited(self, begin: int) -> None:
        if self._entry.peer is not None and isinstance(self._work, DeviceWork):
            self._work.stand()

    def seen_done(self) -> None:
        return

    def get_future(self) -> torch.futures.Future[Any]:
        """It is complete from the beginning: whoever takes its value has their stream wait."""
        return self._work.get_future()


def _is_bucket(call: OperationCall) -> bool:
    """Gradients, where C++ asks in a backward pass: only DistributedDataParallel's reducer does (it also counts, in
    whole numbers, which parameters were used, and waits for that).
    """
    return call.name == "all_reduce" and len(call.inputs) == 1 and call.inputs[0].is_floating_point()


class Laid(NamedTuple):
    """A moment of a device beside the host's clock."""

    moment: Moment
    host: int  # ns
    error: int  # ns: the device was there so much earlier or later at most


class DeviceClock:
    """When operations ended on a device: the host runs ahead of it, and learns of it by moments that are over.

    The device's clock is laid beside the host's before the run and after it. A moment that is launched on an idle
    device, between two looks at the host's clock, lies between them; the closest of some such pairs counts.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._followed: list[tuple[Entry, DeviceWork]] = []
        self._under_way: deque[tuple[Entry, DeviceWork]] = deque()

    def start(self) -> None:
        self._accelerator.synchronize()
        self._first = self._last = self._laid()

    def end(self) -> None:
        """The device is idle again."""
        self._last = self._laid()

    @property
    def error(self) -> int:
        """Times that `when` gives are so many ns off at most, where the device's clock ran evenly."""
        return max(self._first.error, self._last.error)

    def _laid(self) -> Laid:
        return min((self._laid_once() for _ in range(LAYINGS)), key=lambda laid: laid.error)

    def _laid_once(self) -> Laid:
        before = time.monotonic_ns()
        moment = self._accelerator.moment(timed=True)
        moment.synchronize()
        after = time.monotonic_ns()
        return Laid(moment, (before + after) // 2, -(-(after - before) // 2))

    def follow(self, entry: Entry, work: DeviceWork) -> None:
        self._followed.append((entry, work))
        self._under_way.append((entry, work))

    def oldest(self, issue: bool = False) -> Entry | None:
        """Of the operations that are not over, the first. issue: messages that nobody waited for go now."""
        for entry, work in list(self._under_way):
            if issue:
                work.issue()
            if work.end is None:
                continue  # held until somebody waits
            if not work.end.reached():
                return entry
            work.let_go()
            self._under_way.remove((entry, work))
        return None

    def now(self) -> Moment:
        return self._accelerator.moment(timed=True)

    def when(self, moment: Moment) -> int:
        """In ns of the host's clock, for a moment that is over."""
        first, last = self._first, self._last
        since, whole = moment.since(first.moment), last.moment.since(first.moment)
        ahead = last.host - first.host - whole  # by so much the host's clock has gone further
        return first.host + since + (ahead * since // whole if whole else 0)

    def read(self) -> None:
        """Notes what is over by now."""
        for entry, work in self._followed:
            if work.end is None or not work.end.reached():
                continue
            entry.ended = max(entry.issued, self.when(work.end))
            entry.keep = None
            if work.stood is not None and work.stood.reached():
                stood = max(entry.issued, self.when(work.stood))
                entry.waits.append((stood, max(stood, entry.ended)))
