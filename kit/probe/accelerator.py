"""What a rank computes on: the one place in the ranks' code that speaks to torch.cuda and its like.

A GPU works on its own time. The host launches, and learns by events alone what is over; and which GPU a thread means
is a matter of the thread: a new one stands on the first GPU of the machine, whatever rank it belongs to. So whoever
starts a thread that touches tensors lets it `take` the rank's accelerator first.
"""

from __future__ import annotations

import os
import resource
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from kit.probe.torch_private import let_go_of_workspaces
from kit.trace.facts import Memory

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Moment(ABC):
    """A point in what a thread has launched: the device comes to it once all that was launched before is over."""

    @abstractmethod
    def reached(self) -> bool:
        """Whether the device has come to it; asks, and does not wait."""

    @abstractmethod
    def synchronize(self) -> None:
        """The host waits for it."""

    @abstractmethod
    def hold(self) -> None:
        """What the calling thread launches from now on begins after it; the host does not wait."""

    @abstractmethod
    def since(self, earlier: Any) -> int:
        """Nanoseconds from another moment of the same rank to this one; both timed, and both reached."""


class Accelerator(ABC):
    """The device of one rank."""

    runs_ahead: bool  # the host runs ahead of it, so that only moments tell when something was over

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @abstractmethod
    def take(self) -> None:
        """Makes it the calling thread's current device."""

    @abstractmethod
    def seed(self, number: int) -> None:
        """Seeds torch's random numbers, those of the host and those of the device."""

    @abstractmethod
    def moment(self, timed: bool = False) -> Moment:
        """A moment after all that the calling thread has launched so far. timed: other moments can be told from it."""

    @abstractmethod
    def aside(self, line: str = "") -> Any:
        """A context in which the calling thread launches beside its usual work, in the order of `line`."""

    @abstractmethod
    def synchronize(self) -> None:
        """Waits for all that was launched on the device, by whichever thread."""

    @abstractmethod
    def future(self) -> torch.futures.Future[Any]:
        """For results that lie on the device."""

    @abstractmethod
    def memory(self) -> Memory:
        """What the rank holds now, and held at most."""

    @abstractmethod
    def allocated(self) -> int | None:
        """Bytes of the device's memory that torch has given out; None where nobody counts them."""

    def blocks(self) -> dict[int, int]:
        """Address -> bytes of what torch has given out of the device's memory; nothing where it does not tell."""
        return {}

    def workspaces(self) -> dict[int, int]:
        """Those of its blocks that a library keeps to compute in. They are let go, and taken anew when needed."""
        return {}

    @abstractmethod
    def free(self) -> int | None:
        """Bytes of the device's own memory that nobody holds; None where it has none of its own, or does not say."""


class HostMoment(Moment):
    """A processor has done what it was told by the time it is told more."""

    def __init__(self) -> None:
        self.time = time.monotonic_ns()

    def reached(self) -> bool:
        return True

    def synchronize(self) -> None:
        return

    def hold(self) -> None:
        return

    def since(self, earlier: HostMoment) -> int:
        return self.time - earlier.time


class Cpu(Accelerator):
    """Nothing to take, and nothing to wait for."""

    runs_ahead = False

    def take(self) -> None:
        return

    def seed(self, number: int) -> None:
        """torch.manual_seed would note it, with the stack of calls, for GPUs that are not here: 2 MB of a rank."""
        torch.default_generator.manual_seed(number)

    def moment(self, timed: bool = False) -> Moment:
        return HostMoment()

    @contextmanager
    def aside(self, line: str = "") -> Iterator[None]:
        yield

    def synchronize(self) -> None:
        return

    def future(self) -> torch.futures.Future[Any]:
        return torch.futures.Future()

    def memory(self) -> Memory:
        with open("/proc/self/statm", encoding="ascii") as statm:
            now = int(statm.read().split()[1]) * _PAGE
        return Memory(now, max(now, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024), "resident set")

    def allocated(self) -> None:
        return None

    def free(self) -> None:
        return None


class GpuMoment(Moment):
    """An event on the calling thread's stream of the device, which `stream` says: a thread of the learner's own may
    stand on another device.
    """

    def __init__(self, event: Any, stream: Callable[[], Any]) -> None:
        self._event = event
        self._stream = stream
        self._event.record(stream())

    def reached(self) -> bool:
        return bool(self._event.query())

    def synchronize(self) -> None:
        self._event.synchronize()

    def hold(self) -> None:
        self._event.wait(self._stream())

    def since(self, earlier: GpuMoment) -> int:
        return round(float(earlier._event.elapsed_time(self._event)) * 1e6)


class Gpu(Accelerator):
    """A GPU of a kind that torch has streams and events for. torch_of_kind: torch.cuda, torch.xpu."""

    runs_ahead = True

    def __init__(self, device: torch.device, torch_of_kind: Any = None) -> None:
        super().__init__(device)
        self._torch = torch_of_kind or torch.get_device_module(device)
        self._lines: dict[str, Any] = {}

    def take(self) -> None:
        self._torch.set_device(self.device)

    def seed(self, number: int) -> None:
        torch.manual_seed(number)

    def moment(self, timed: bool = False) -> Moment:
        return GpuMoment(self._torch.Event(enable_timing=timed), lambda: self._torch.current_stream(self.device))

    @contextmanager
    def aside(self, line: str = "") -> Iterator[None]:
        if line not in self._lines:
            self._lines[line] = self._torch.Stream(device=self.device)
        with self._torch.stream(self._lines[line]):
            yield

    def synchronize(self) -> None:
        self._torch.synchronize(self.device)

    def future(self) -> torch.futures.Future[Any]:
        return torch.futures.Future(devices=[self.device])

    def memory(self) -> Memory:
        kind = f"{self.device.type} allocator"
        return Memory(self._torch.memory_allocated(self.device), self._torch.max_memory_allocated(self.device), kind)

    def allocated(self) -> int:
        return int(self._torch.memory_allocated(self.device))

    def blocks(self) -> dict[int, int]:
        snapshot = getattr(self._torch, "memory_snapshot", list)
        return {
            block["address"]: block["size"]
            for segment in snapshot()
            if segment["device"] == self.device.index
            for block in segment["blocks"]
            if block["state"] == "active_allocated"
        }

    def workspaces(self) -> dict[int, int]:
        before = self.blocks()
        let_go_of_workspaces()
        after = self.blocks()
        return {address: size for address, size in before.items() if address not in after}

    def free(self) -> int | None:
        tell = getattr(self._torch, "mem_get_info", None)  # Intel's GPUs say so since torch 2.8
        return int(tell(self.device)[0]) if tell is not None else None


def of(device: torch.device) -> Accelerator:
    """The accelerator of a rank."""
    return Cpu(device) if device.type == "cpu" else Gpu(device)


CPU = Cpu(torch.device("cpu"))
