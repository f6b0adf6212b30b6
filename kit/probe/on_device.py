"""Operations that a device does in queues of its own, as NCCL's: what a Work of theirs does not tell, moments do.

Such a group gives no Work for a blocking call, and a Work of its says when it is over to nobody but the device: `wait`
holds the current stream and returns at once (torch's ProcessGroupNCCL.cpp, `collective` and `synchronizeStream`).

Its messages stand in the group's one queue, and a receive that is ahead of a send there holds it up. So `isend; irecv;
wait` on both sides, which gloo lets pass, would stop for ever. Messages are therefore held until somebody waits, or
something else is issued, and then go together: within the start and the end of coalescing all of them progress.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist

from kit.probe.accelerator import Accelerator, Moment
from kit.probe.operations import OperationCall
from kit.probe.work import OwnWork

NATIVE = ("nccl", "xccl")  # backends of this kind, as their groups name them

Call = Callable[[], "dist.Work | None"]


def unlike_gloo(call: OperationCall) -> str | None:
    """What of a message gloo knows and NCCL does not, in words."""
    if call.peer == -1:
        return "nccl receives from a rank that is named: dist.recv(x, src=...)"
    if call.tag:
        return (
            f"nccl knows no tags, and {call.name} has tag={call.tag}: messages from one rank to another come in the "
            "order in which they were sent, so leave the tag out"
        )
    return None


class DeviceWork(OwnWork):
    """What such a group was asked for. line: the queue it stands in. keeps: its tensors.

    `end` is the moment it is over. A side stream waits for it, and by the first wait, on whichever stream, the library
    lets go of the tensors: so they are kept here until the learner's own stream waits, or it is over.
    """

    def __init__(self, accelerator: Accelerator, line: str, keeps: list[torch.Tensor], messages: Messages) -> None:
        super().__init__()
        self.asked = accelerator.moment(timed=True)  # all that it reads is written by then
        self.end: Moment | None = None
        self.stood: Moment | None = None  # from when on the stream of whoever waits stands still for it
        self._accelerator = accelerator
        self._line = line
        self._keeps = keeps
        self._messages = messages
        self._work: dist.Work | None = None

    def issued(self, work: dist.Work | None) -> None:
        """It is on the device. work: None of a blocking call, for which the current stream waits already."""
        self._work = work
        if work is None:
            self.stood = self.asked
            self.end = self._accelerator.moment(timed=True)
            self._keeps = []
            return
        with self._accelerator.aside(self._line):
            work.wait()
            self.end = self._accelerator.moment(timed=True)

    def issue(self) -> None:
        """Whatever is held back goes when anything is waited for: a partner may want it before it gives its part."""
        self._messages.issue()

    def let_go(self) -> None:
        """It is over, or the stream that its tensors belong to waits for it."""
        self._keeps = []

    def wait(self, timeout: Any = None) -> bool:
        self.issue()
        if self.stood is None:
            self.stood = self._accelerator.moment(timed=True)
        if self._work is not None:
            self._work.wait() if timeout is None else self._work.wait(timeout)
        self.let_go()
        return True

    def synchronize(self) -> None:
        self.wait()

    def stand(self) -> None:
        """The host waits until it is over."""
        self.issue()
        assert self.end is not None
        self.end.synchronize()

    def is_completed(self) -> bool:
        self.issue()
        return self.end is not None and self.end.reached()

    def is_success(self) -> bool:
        return self.is_completed()

    def exception(self) -> Any:
        return None if self._work is None else self._work.exception()

    def result(self) -> Any:
        self.issue()
        return [] if self._work is None else self._work.result()

    def source_rank(self) -> int:
        return -1

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future[Any]:
        self.issue()
        if self._work is not None:
            return self._work.get_future()
        future = self._accelerator.future()
        future.set_result(self._keeps)
        return future


class MessageGroup(Protocol):
    """A process group that issues messages together."""

    label: str

    @property
    def accelerator(self) -> Accelerator: ...

    def issue_together(self, messages: list[HeldMessage]) -> None: ...


class HeldMessage(DeviceWork):
    """A send or a receive that is not issued yet."""

    def __init__(self, messages: Messages, group: MessageGroup, call: Call, tensors: list[torch.Tensor]) -> None:
        super().__init__(group.accelerator, group.label, tensors, messages)
        self.group = group
        self.call = call
        self._tensors = tensors

    def result(self) -> Any:
        return self._tensors

    def get_future(self) -> torch.futures.Future[Any]:
        self.issue()
        future = self._accelerator.future()
        with self._accelerator.aside(self._line):
            future.set_result(self._tensors)
        return future


class Messages:
    """Those of one rank that are held, of all its groups."""

    def __init__(self) -> None:
        self._held: list[HeldMessage] = []
        self._issuing = threading.RLock()

    def hold(self, message: HeldMessage) -> None:
        with self._issuing:
            self._held.append(message)

    def issue(self) -> None:
        """Each group's go together, group by group in the order in which they were asked for."""
        if not self._held:
            return
        with self._issuing:
            held, self._held = self._held, []
            for group in dict.fromkeys(message.group for message in held):
                group.issue_together([message for message in held if message.group is group])
