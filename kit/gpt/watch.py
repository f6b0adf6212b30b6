"""How long the parts of a step take on the device: its own events tell, and the host waits for the last one alone."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping

import torch

Mark = Callable[[str], None]
"""Says what has been done since the mark before."""


class Watch(ABC):
    """Marks in a row, the first one made with it."""

    @abstractmethod
    def mark(self, name: str) -> None:
        """What was launched since the mark before is called so."""

    @abstractmethod
    def seconds(self) -> Mapping[str, float]:
        """Of each name all the time together; waits until the device has come to the last mark."""


class HostWatch(Watch):
    """For a device that has done what it was asked for when the call returns: the CPU."""

    def __init__(self) -> None:
        self._spent: Counter[str] = Counter()
        self._last = time.perf_counter_ns()

    def mark(self, name: str) -> None:
        now = time.perf_counter_ns()
        self._spent[name] += now - self._last
        self._last = now

    def seconds(self) -> Mapping[str, float]:
        return {name: spent / 1e9 for name, spent in self._spent.items()}


class DeviceWatch(Watch):
    """For a device that works on its own time. Launch times, which S0's log shows as dtf and dtb, are not these."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks = [("", self._event())]

    def mark(self, name: str) -> None:
        self._marks.append((name, self._event()))

    def seconds(self) -> Mapping[str, float]:
        self._marks[-1][1].synchronize()
        spent: Counter[str] = Counter()
        for (_, before), (name, event) in zip(self._marks, self._marks[1:], strict=False):
            spent[name] += before.elapsed_time(event) / 1e3  # type: ignore[assignment]  # floats count as well
        return spent

    def _event(self) -> torch.Event:
        event = torch.Event(self._device, enable_timing=True)
        event.record()
        return event


def watch(device: torch.device) -> Watch:
    """The watch that tells the time of a device."""
    return HostWatch() if device.type == "cpu" else DeviceWatch(device)
