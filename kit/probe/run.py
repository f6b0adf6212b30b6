"""One function on one rank, from unpickled to finished: what stepping and recording have in common."""

from __future__ import annotations

import io
import os
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import cloudpickle
import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map_only

from kit.probe import capture, shipping
from kit.probe.backend import Launch, ObservedGroup
from kit.probe.blackbox import Blackbox
from kit.probe.capture import Capture
from kit.probe.code import Code
from kit.probe.delta import Encoder
from kit.probe.ledger import Ledger
from kit.probe.links.throttle import Throttle
from kit.probe.operations import Draft
from kit.probe.output import Printed
from kit.probe.wire import Message
from kit.trace.facts import Failure, Frame, Stop

_PROBE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class RunAborted(BaseException):
    """Raised in the learner's code to end it; not an Exception, so that `except Exception` lets it pass."""


class Run:
    """Subclasses say what happens at an operation (`perform`, `joining`) and around the function (`start`, `end`)."""

    def __init__(
        self, request: Message, rank: int, send: Callable[[Message], None], blackbox: Blackbox, device: torch.device
    ):
        self.id: int = request["run"]
        self.rank = rank
        self.aborted: str | None = None
        self.worker = threading.get_ident()
        self.native = threading.get_native_id()
        self.blackbox = blackbox
        self.device = device
        links = request.get("links")
        self.throttle = Throttle(links, rank, device, self.id) if links is not None else None
        self.code = Code(request["sources"], request["root_file"])
        self.ledger = Ledger(rank, self.code, self.worker, blackbox)
        self.printed = Printed()
        self.capture = Capture(self.code, request["budget"])
        self.released = time.monotonic_ns()
        self._send = send
        self._encoder = Encoder()
        self._stops = 0
        self._last_frames: tuple[Frame, ...] = ()
        shipping.show_sources(request["sources"])
        self._function = shipping.unpack(request["function"])
        self._args, self._kwargs = on_device(shipping.unpack(request["arguments"]), device)

    def tell(self, kind: str, **content: Any) -> None:
        self._send({"kind": kind, "run": self.id, **content})

    def body(self) -> None:
        """Runs the function in the calling thread and reports how it ended."""
        self.printed.install(self.worker)
        result, failure = None, None
        if self.device.type != "cpu":
            torch.set_default_device(
                self.device
            )  # of this thread: plain code makes its tensors where its rank computes
        try:
            self.start()
            result = self._function(*self._args, **self._kwargs)
        except RunAborted as aborted:
            failure = Failure("RunAborted", str(aborted), "", None)
        except BaseException as error:  # SystemExit too: a rank must outlive what it runs
            failure = self._failure(error)
        finally:
            self.end()
            if self.throttle is not None:
                self.throttle.end()
            self.printed.remove()
        blob, failure = _pickled(result) if failure is None else (None, failure)
        self.report_stop("failed" if failure else "finished", self._last_frames, error=failure, result=blob)

    def start(self) -> None:
        raise AssertionError("a run says how it starts")

    def end(self) -> None:
        raise AssertionError("a run says how it ends")

    def perform(self, group: ObservedGroup, draft: Draft, launch: Launch) -> dist.Work:
        raise AssertionError("a run says what an operation does")

    def joining(self, name: str, ranks: tuple[int, ...]) -> AbstractContextManager[None]:
        raise AssertionError("a run says what making a group does")

    def abort(self, reason: str) -> None:
        self.aborted = reason

    def over_links(self, group: ObservedGroup, draft: Draft, launch: Launch, asked: int | None = None) -> Launch:
        """`launch` as it is, or held back where links are throttled. asked: when, in ns; None: when it is launched."""
        throttle = self.throttle
        if throttle is None:
            return launch
        return lambda *source: throttle.issue(draft, group.label, group.ranks, lambda: launch(*source), asked)

    def report_stop(self, phase: str, frames: tuple[Frame, ...], about_to: str | None = None, **more: Any) -> None:
        """Posts where the rank stands, what it holds and what it did since it was last released."""
        now = time.monotonic_ns()
        self._last_frames = frames
        encoded, facts = self._encoder.encode(frames)
        stop = Stop(
            rank=self.rank,
            index=self._stops,
            time=now,
            frames=encoded,
            memory=capture.memory(self.device),
            output=self.printed.take(),
            operations=len(self.ledger.entries),
            about_to=about_to,
            truncated=self.capture.spent,
        )
        self._stops += 1
        self.tell("stop", phase=phase, stop=stop, facts=facts, active=(self.released, now), **more)

    def _failure(self, error: BaseException) -> Failure:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_PROBE)]
        text = "".join(["Traceback (most recent call last):\n", *traceback.format_list(frames)])
        text += "".join(traceback.format_exception_only(error))
        place, step = None, error.__traceback__
        while step is not None:
            if self.code.is_stepped(step.tb_frame):
                place = self.code.place(step.tb_frame) if place is None else place
                if self.code.is_foreground(step.tb_frame.f_code.co_filename):
                    file, name = step.tb_frame.f_code.co_filename, step.tb_frame.f_code.co_name
                    place = type(self.code.place_of(step.tb_frame))(file, self.code.line(file, step.tb_lineno), name)
            step = step.tb_next
        return Failure(type(error).__name__, str(error), text, place)


def naming_of_group() -> str:
    """What the learner calls while a group is being made: the first one is the default group."""
    return "new_group" if dist.is_initialized() else "init_process_group"


def on_device(values: Any, device: torch.device) -> Any:
    """The same arguments with every tensor in them on the rank's device."""
    if device.type == "cpu":
        return values
    return tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), values)


class _ResultPickler(cloudpickle.Pickler):
    """Results come home to a kernel that may have no GPU."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch.Tensor) and obj.device.type not in ("cpu", "meta"):
            return obj.cpu().__reduce_ex__(5)
        return super().reducer_override(obj)


def _pickled(result: Any) -> tuple[bytes | None, Failure | None]:
    out = io.BytesIO()
    try:
        _ResultPickler(out).dump(result)
    except Exception as error:  # whatever the learner's object raises while it is pickled
        what = f"what the function returned cannot be sent back ({type(error).__name__}: {error})"
        message = f"{what}: return tensors or plain data"
        return None, Failure(type(error).__name__, message, "", None)
    return out.getvalue(), None
