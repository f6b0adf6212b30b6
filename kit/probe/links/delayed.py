"""Work that is over when a slower network would have let it be: the real operation, and then the rest of the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from kit.probe.accelerator import Accelerator
from kit.probe.deferred import AwaitedWork
from kit.probe.links.board import Board, Transfer
from kit.probe.on_device import DeviceWork

WAKING = 4e-5  # s that a sleeper may come late: the last of a wait is spent awake
FOLLOWS = 3e-4  # s of Python between two messages that the model has in its latency
LATE = 5e-3  # s that a rank may be woken, or a message really come, too late without the next one's being late too
ASKING = 2e-4  # s between two looks at the board
REAL = (1e-4, 1e9)  # s and bytes/s of the machine's own transfers: where nobody wrote down when this one began

Awaited = Transfer | Callable[[int], Transfer | None]  # a function, while the source is not known


class Pace:
    """One message after another, as in a ring: when a rank asked for the next, as the model sees it.

    A latency has in it what the software needs to start a message. So a message that the rank's own thread asks for as
    soon as another has come (less than `FOLLOWS` of its code in between) counts from that one's arrival by the model:
    neither Python's time nor a late wake-up (up to `LATE`) adds up from message to message. Collectives begin when they
    are called.
    """

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self._came: float | None = None  # when the last message was due
        self._left = 0.0  # when the rank's own code went on

    def asked(self, moment: float) -> float:
        """From when on a message counts that the calling thread asks for at `moment`."""
        if threading.get_ident() != self._thread or self._came is None:
            return moment
        if moment - self._left > FOLLOWS:
            self._came = None
            return moment
        return min(max(self._came, moment - LATE), moment)

    def breaks_off(self, moment: float) -> float:
        """The same of a collective."""
        if threading.get_ident() == self._thread:
            self._came = None
        return moment

    def goes_on(self, moment: float, came: float | None = None) -> None:
        """From `moment` on the rank's own code runs again: after asking, or after a message that was due at `came`."""
        if threading.get_ident() == self._thread:
            self._left = moment
            if came is not None:
                self._came = max(came, self._came or 0.0)


class DelayedWork(AwaitedWork):
    """Goes at once and is over at the later of two moments: when it has really come, and when its transfer is due.

    transfer: what this rank has asked for; or, for a receive from any source, what says so once the source is known
    (None: no slow link).
    """

    def __init__(
        self,
        work: dist.Work,
        tensors: list[torch.Tensor],
        accelerator: Accelerator,
        board: Board,
        transfer: Awaited,
        nbytes: int,
        due: float | None,
        pace: Pace | None,
    ) -> None:
        super().__init__(tensors, accelerator)
        self.real = work
        self._board = board
        self._transfer = transfer
        self._real = REAL[0] + nbytes / REAL[1]
        self.due = due
        self._pace = pace

    def wait(self, timeout: Any = None) -> bool:
        try:
            return super().wait(timeout)
        finally:
            if self._pace is not None and self.due is not None:
                self._pace.goes_on(time.monotonic(), self.due)

    def _come(self, timeout: Any, waited_for: bool) -> None:
        self._comes_really(timeout)
        sleep_until(self._when_due(time.monotonic()), WAKING if waited_for else 0.0)

    def _comes_really(self, timeout: Any) -> None:
        """The calling thread stands until then, whichever stream a device's Work is waited for on elsewhere."""
        if isinstance(self.real, DeviceWork):
            self.real.stand()
        elif timeout is None:
            self.real.wait()
        else:
            self.real.wait(timeout)

    def _when_due(self, ended: float) -> float:
        """Known to the board once all its ranks have asked.

        That is so when a message has really come, but for one that was taken from any source: then it is settled here.
        """
        if self.due is None:
            transfer = self._transfer
            if not isinstance(transfer, Transfer):
                self.source = self.real._source_rank()
                found = transfer(self.source)
                if found is None:
                    return ended
                transfer, self.due = found, self._board.ask(found)
            self.due = self.due or self._board.due(transfer)
            while self.due is None and not transfer.is_message and self._board.waits_for_more(transfer):
                time.sleep(ASKING)  # a root may be done before a leaf has called; the model begins with the last
                self.due = self._board.due(transfer)
            self.due = self.due or self._board.settle(transfer, ended - self._real)
        return self.due


def sleep_until(moment: float, awake: float) -> None:
    """Until a moment of the monotonic clock (s), the last `awake` seconds of it on the processor."""
    while (left := moment - time.monotonic()) > awake:
        time.sleep(left - awake)
    while time.monotonic() < moment:
        time.sleep(0)  # lets other threads of this interpreter pass
