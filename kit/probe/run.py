"""One function on one rank, from unpickled to finished: what stepping and recording have in common."""

from __future__ import annotations

import os
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist

from kit.probe import shipping
from kit.probe.accelerator import Accelerator
from kit.probe.arrival import Arrival
from kit.probe.backend import Launch, ObservedGroup
from kit.probe.blackbox import Blackbox
from kit.probe.capture import Capture
from kit.probe.code import Code
from kit.probe.delta import Encoder
from kit.probe.ledger import Ledger
from kit.probe.links.throttle import Throttle
from kit.probe.operations import OperationCall
from kit.probe.output import Printed
from kit.probe.placing import placed
from kit.probe.storages import arriving_on
from kit.protocol.messages import AtStop, Begin, RunNews, Task, Unloaded
from kit.protocol.parcels import Parcel, packed
from kit.trace.facts import PARTNER_LOST, Failure, Frame, Phase, Place, Stop

_PARTNER_GONE = ("Connection closed by peer", "Connection reset by peer")  # gloo's words
_PROBE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class RunAborted(BaseException):
    """Raised in the learner's code to end it; not an Exception, so that `except Exception` lets it pass."""


class Run(ABC):
    """Subclasses say what happens at an operation (`perform`, `joining`) and around the function (`start`, `end`)."""

    def __init__(
        self, order: Begin, rank: int, send: Callable[[RunNews], None], blackbox: Blackbox, accelerator: Accelerator
    ):
        task = order.task
        self.id = task.run
        self.rank = rank
        self.aborted: str | None = None
        self.world_is_whole = True  # its groups can be used by the next run
        self.worker = threading.get_ident()
        self.native = threading.get_native_id()
        self.blackbox = blackbox
        self.accelerator = accelerator
        self.throttle = Throttle(task.links, rank, accelerator, self.id) if task.links is not None else None
        self.code = Code(task.sources, task.root_file, task.mode == "step")
        self.ledger = Ledger(rank, self.code, self.worker, blackbox)
        self.printed = Printed(task.root_file)
        self.capture = Capture(self.code, task.budget)
        self.released = time.monotonic_ns()
        self.send = send
        self._encoder = Encoder()
        self._stops = 0
        self._last_frames: tuple[Frame, ...] = ()
        shipping.show_sources(task.sources)
        self.arrival = Arrival(task.function, task.rest, arriving_on(accelerator.device))
        self._args, self._kwargs = self.arrival.open(order.arguments)

    def body(self) -> None:
        """Runs the function in the calling thread and reports how it ended."""
        self.printed.install(self.worker)
        result, failure = None, None
        try:
            self.start()
            with placed(self.accelerator.device):
                result = self.arrival.function(*self._args, **self._kwargs)
        except RunAborted as aborted:
            failure = Failure("RunAborted", str(aborted), "", None)
        except BaseException as error:  # SystemExit too: a rank must outlive what it runs
            if not (isinstance(error, SystemExit) and error.code in (None, 0)):  # sys.exit(): all went well
                failure = self._failure(error)
        finally:
            self.end()
            del self._args, self._kwargs  # the run outlives them, until the next begins
            if self.throttle is not None:
                self.throttle.end()
            self.printed.remove()
        parcel, failure = _packed(result) if failure is None else (None, failure)
        self.report_stop("failed" if failure else "finished", self._last_frames, error=failure, result=parcel)

    @abstractmethod
    def start(self) -> None:
        """Before the function is called."""

    @abstractmethod
    def end(self) -> None:
        """After it has returned or raised."""

    @abstractmethod
    def perform(self, group: ObservedGroup, call: OperationCall, launch: Launch) -> dist.Work:
        """Does an operation that the function, or a library for it, has asked for; `launch` does the real one."""

    @abstractmethod
    def joining(self, name: str, ranks: tuple[int, ...]) -> AbstractContextManager[None]:
        """Around the making of a process group."""

    def let_go(self) -> None:
        """After its end: a rank stays, and nothing that the function held may stay with it."""
        self.arrival.leave()
        for entry in self.ledger.entries:
            if entry.ended is not None:
                entry.keep = None

    def abort(self, reason: str) -> None:
        self.aborted = reason

    def put_away(self) -> None:
        """Before the next run begins."""
        return

    def over_links(self, group: ObservedGroup, call: OperationCall, launch: Launch, asked: int | None = None) -> Launch:
        """`launch` as it is, or held back where links are throttled. asked: when, in ns; None: when it is launched."""
        throttle = self.throttle
        if throttle is None:
            return launch
        return lambda *source: throttle.issue(call, group.label, group.ranks, lambda: launch(*source), asked)

    def report_stop(
        self,
        phase: Phase,
        frames: tuple[Frame, ...],
        about_to: str | None = None,
        error: Failure | None = None,
        result: Parcel | None = None,
        obeyed: int = 0,
    ) -> None:
        """Posts where the rank stands, what it holds and what it did since it was last released."""
        now = time.monotonic_ns()
        self._last_frames = frames
        encoded, facts = self._encoder.encode(frames)
        stop = Stop(
            rank=self.rank,
            index=self._stops,
            time=now,
            frames=encoded,
            memory=self.accelerator.memory(),
            output=self.printed.take(),
            operations=len(self.ledger.entries),
            about_to=about_to,
            truncated=self.capture.spent,
        )
        self._stops += 1
        self.send(AtStop(self.id, self.rank, phase, stop, facts, (self.released, now), error, result, obeyed))

    def _failure(self, error: BaseException) -> Failure:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_PROBE)]
        text = "".join(["Traceback (most recent call last):\n", *traceback.format_list(frames)])
        text += "".join(traceback.format_exception_only(error))
        place = None
        for frame, line in traceback.walk_tb(error.__traceback__):
            if self.code.is_stepped(frame):
                code = frame.f_code
                if place is None or self.code.is_foreground(code.co_filename):
                    place = Place(code.co_filename, self.code.line(code.co_filename, line), code.co_name)
        elsewhere = place is not None and place.file != self.code.root_file
        if any(words in str(error) for words in _PARTNER_GONE):
            gone = "another rank closed the connection: its process ended, or it left the group"
            return Failure(PARTNER_LOST, gone, text, place, elsewhere)
        return Failure(type(error).__name__, _with_remedy(str(error)), text, place, elsewhere)


def _with_remedy(message: str) -> str:
    """What an error of Python's means on a rank, and what to do, where it does not say so itself."""
    if message.startswith("signal only works in main thread"):
        return (
            f"{message}: a rank's function runs in another, beside the thread that ends it when you say so. Leave the "
            "handler out here, with `if threading.current_thread() is threading.main_thread():` before it"
        )
    if message.startswith("Expected all tensors to be on the same device"):
        return (
            f"{message}: what plain code makes on these ranks lies on their GPU; what numpy or a DataLoader's worker "
            "brings lies in the host's memory until you say .to(...)"
        )
    if message.startswith("Cannot re-initialize CUDA in forked subprocess"):
        return (
            f"{message}: a worker of a DataLoader cannot read what lies on its rank's GPU. Keep the data in the host's "
            "memory (device='cpu' where it is made), or load it without workers"
        )
    return message


def could_not_begin(task: Task, rank: int, error: Exception) -> Unloaded:
    hint = f"rank {rank} could not load the function: {error}"
    failure = Failure(type(error).__name__, hint, "".join(traceback.format_exception(error)), None)
    return Unloaded(task.run, rank, failure, time.monotonic_ns())


def making_of_group() -> OperationCall:
    """What the learner calls while a group is being made: the first one is the default group."""
    return OperationCall("new_group" if dist.is_initialized() else "init_process_group", [], [])


class _ResultPickler(shipping.Pickler):
    """Results come home to a kernel that may have no GPU."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch.Tensor) and obj.device.type not in ("cpu", "meta"):
            kind = torch.nn.Parameter if isinstance(obj, torch.nn.Parameter) else torch.Tensor.requires_grad_
            return kind(obj.detach().cpu(), obj.requires_grad).__reduce_ex__(5)
        return super().reducer_override(obj)


def _packed(result: Any) -> tuple[Parcel | None, Failure | None]:
    if isinstance(result, Generator | Coroutine):
        result.close()  # nobody is to be warned that it was never awaited
        kind = "a coroutine" if isinstance(result, Coroutine) else "a generator"
        message = f"the function returned {kind}, which cannot be sent back: run it there, and return what comes of it"
        return None, Failure("TypeError", message, "", None)
    try:
        return packed(result, _ResultPickler), None
    except Exception as error:  # whatever the learner's object raises while it is pickled
        what = f"what the function returned cannot be sent back ({type(error).__name__}: {error})"
        message = f"{what}: return tensors or plain data"
        return None, Failure(type(error).__name__, message, "", None)
