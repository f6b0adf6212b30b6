"""Recording over slow links: when each operation was over, and when the rank stood still for it.

At full speed the end of an operation that nobody waits for is noted when the rank next passes by, because looking
sooner would cost it time. On throttled links nothing is gained by that haste: the moment is known to what holds the
operation back, and passes of the training step are noted too, so that a picture can say what computing has hidden.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from kit.probe.backend import Launch, ObservedGroup
from kit.probe.deferred import DeferredWork
from kit.probe.ledger import Entry
from kit.probe.links.delayed import DelayedWork
from kit.probe.on_device import DeviceWork
from kit.probe.operations import OperationCall
from kit.probe.passes import Passes
from kit.probe.record import RecordRun
from kit.protocol.messages import Operations

STOOD = 1_000_000  # ns of a wait that are more than the passing of a finished one


class TimedRun(RecordRun):
    """One rank's part of a recorded function on throttled links."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._passes = Passes(clock=self.clock)
        self._futures: list[Entry] = []  # operations that were handed out as futures, in order of issue

    def start(self) -> None:
        super().start()
        self._passes.start()

    def end(self) -> None:
        self._passes.stop()
        super().end()

    def settle(self) -> None:
        for entry in self.ledger.entries:
            if entry.ended is not None and entry.waits and entry.waits[-1][1] - entry.waits[-1][0] > STOOD:
                entry.ended = max(entry.ended, entry.waits[-1][1])
        for computed, over in self._passes.computed:
            self._stood_in_futures(computed, over)

    def held_back(self, entry: Entry, group: ObservedGroup, call: OperationCall, launch: Launch) -> Launch:
        over_links = super().held_back(entry, group, call, launch)

        def launched(*source: int) -> dist.Work:
            work = over_links(*source)
            if isinstance(work, DeferredWork):  # not work.after, for which a thread would wait
                DeferredWork.after(work, partial(self._over, entry, work))
            return work

        return launched

    def promise(self, entry: Entry, future: torch.futures.Future[Any]) -> None:
        super().promise(entry, future)
        self._futures.append(entry)

    def operations(self) -> Operations:
        return replace(super().operations(), passes=self._passes.facts)

    def _over(self, entry: Entry, work: DeferredWork) -> None:
        """Called by the thread that completes the operation: on time, or when the rank's own comes to wait for it."""
        now = time.monotonic_ns()
        due = work.due if isinstance(work, DelayedWork) else None
        late = threading.get_ident() == self.worker and due is not None
        came = max(entry.issued, self._came(work))
        entry.ended = min(now, max(came, round(due * 1e9))) if late and due is not None else now

    def _came(self, work: DeferredWork) -> int:
        """When it had really come, where a device knows (ns); 0 elsewhere."""
        real = work.real if isinstance(work, DelayedWork) else None
        if self.clock is None or not isinstance(real, DeviceWork) or real.end is None:
            return 0
        return self.clock.when(real.end)

    def _stood_in_futures(self, computed: int, over: int) -> None:
        """A reducer waits in C++, at the end of the backward pass, for the buckets that are still under way."""
        since = computed
        for entry in self._futures:
            if entry.ended is None or entry.waits or entry.issued > computed or entry.ended > over + STOOD:
                continue
            entry.ended = min(entry.ended, over)  # its future came before the note of it
            if entry.ended > since:
                entry.waits.append((since, entry.ended))
                since = entry.ended
