"""torch.cuda for a rank whose GPU is not there: as strict as the real one, and stricter where they may differ.

CPU tensors play the device's part, and `streams` says what its streams wait for. What is kept to here, and where it is
written. S: torch/cuda/streams.py; I: torch/cuda/__init__.py; E: c10/cuda/CUDAEvent.h; R: CUDA runtime API.

1. Which device is the current one is a matter of the thread, and a new thread stands on device 0 (R 'Device
   Management', cudaSetDevice: 'for the calling host thread'; 'Device 0 is the default').
2. A stream that is made without a device belongs to the current one (S `Stream.__new__`).
3. To enter a stream is to enter its device (I `StreamContext`, `set_stream`).
4. An event gets its device when it is first recorded, from the stream; no stream of another may record it (E `record`:
   'Event device ... does not match').
5. An event that was never recorded is reached, and waiting for it waits for nothing (E `query`, `block`).
6. A time between events needs both made for timing, recorded and reached (E `elapsed_time`).

Harsher than all of them: a rank has no business on another rank's device. Who makes a stream there, records an event or
waits for one is `Astray`; the real one would let it, and wait for nothing.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest
import torch

import kit
from kit.probe import accelerator
from kit.trace.facts import Memory
from tests.manners import streams

KIT = os.path.dirname(kit.__file__) + os.sep

_standing: WeakKeyDictionary[threading.Thread, int] = WeakKeyDictionary()


class Astray(RuntimeError):
    """A thread of a rank used another device than the rank's."""


def standing() -> dict[str, int]:
    """The current device of each thread of this process that runs code of the kit's, by its name."""
    threads = {thread.ident: thread for thread in threading.enumerate()}
    return {
        threads[ident].name: _standing.get(threads[ident], 0)
        for ident, stack in sys._current_frames().items()
        if ident in threads
        and any(frame.f_code.co_filename.startswith(KIT) for frame, _ in traceback.walk_stack(stack))
    }


class Cuda:
    """The module, in a process whose rank has device `own`."""

    def __init__(self, own: int) -> None:
        self.own = own

    def set_device(self, device: Any) -> None:
        _standing[threading.current_thread()] = self._index(device)

    def current_device(self) -> int:
        return _standing.get(threading.current_thread(), 0)

    def current_stream(self, device: Any = None) -> streams.Stream:
        self.must_be_own("asked for its stream", self._index(device))
        return streams.current_stream()

    def Stream(self, device: Any = None, priority: int = 0) -> streams.Stream:
        self.must_be_own("made a stream", self._index(device))
        return streams.Stream()

    def Event(self, enable_timing: bool = False, **_: Any) -> Event:
        return Event(self, enable_timing)

    @contextmanager
    def stream(self, stream: streams.Stream) -> Iterator[None]:
        before = self.current_device()
        self.set_device(self.own)
        try:
            with streams.on(stream):
                yield
        finally:
            self.set_device(before)

    def synchronize(self, device: Any = None) -> None:
        self.must_be_own("waited for all its work", self._index(device))
        streams.synchronize()

    def must_be_own(self, what: str, index: int | None = None) -> None:
        index = self.current_device() if index is None else index
        if index != self.own:
            name = threading.current_thread().name
            raise Astray(f"the thread {name!r} {what} on cuda:{index}, and its rank is on cuda:{self.own}")

    def _index(self, device: Any) -> int:
        if device is None:
            return self.current_device()
        if isinstance(device, int):
            return device
        place = torch.device(device)
        return self.own if place.type == "cpu" else place.index if place.index is not None else self.current_device()


class Event(streams.Event):
    def __init__(self, cuda: Cuda, timed: bool) -> None:
        super().__init__(enable_timing=timed)
        self._cuda = cuda
        self._created = False

    def record(self, stream: streams.Stream | None = None) -> None:
        super().record(stream or self._cuda.current_stream())
        self._created = True

    def wait(self, stream: streams.Stream | None = None) -> None:
        super().wait(stream or self._cuda.current_stream())

    def elapsed_time(self, later: Any) -> float:
        if not (self._created and later._created):
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return super().elapsed_time(later)


class StandIn(accelerator.Gpu):
    """The accelerator of a rank on `device`, whose tensors are the CPU's."""

    def __init__(self, device: torch.device) -> None:
        self.cuda = Cuda(device.index)
        super().__init__(torch.device("cpu"), self.cuda)

    def future(self) -> torch.futures.Future[Any]:
        return torch.futures.Future()

    def memory(self) -> Memory:
        return accelerator.CPU.memory()

    def allocated(self) -> None:
        """Of CPU tensors nobody counts."""

    def free(self) -> None:
        """They lie in the host's memory."""


@contextmanager
def on_cuda() -> Iterator[None]:
    """Every cluster that is started within it has ranks with a GPU each, which is played here, and gloo."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kit.clusters.launcher.BOOT", str(Path(__file__).with_name("boot_on_cuda.py")))
        yield


def take_over() -> None:
    """In the agent, before it forks."""
    from kit.clusters import devices

    def plan(request: Any, found: Any, build: Any) -> devices.Plan:
        return devices.Plan("gloo", tuple(f"cuda:{rank}" for rank in range(request.ranks)))

    devices.plan = plan
    accelerator.of = StandIn
