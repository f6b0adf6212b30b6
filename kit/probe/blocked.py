"""Seeing from outside a thread that it stands still inside torch's C++ code."""

from __future__ import annotations

import os
import sys
import time

import torch

ASLEEP = 0.3  # s without any processor time

_TORCH = os.path.dirname(torch.__file__) + os.sep


class BlockedDetector:
    """Watches one thread: its processor time stands still, and its innermost Python frame lies in a folder, torch's.

    A learner's own `time.sleep` does not count there: its innermost frame is the learner's.
    """

    def __init__(self, thread: int, native: int, within: str = _TORCH) -> None:
        self._thread = thread
        self._within = within  # where the innermost frame's file must lie; '' for anywhere
        self._stat = f"/proc/self/task/{native}/stat"
        self._spent = -1
        self._since = 0.0

    def seconds(self) -> float:
        """Seconds, over the calls so far, that the thread has stood still there; 0.0 when it moved or is elsewhere."""
        frame = sys._current_frames().get(self._thread)
        now = time.monotonic()
        spent = self._processor_time()
        if frame is None or not frame.f_code.co_filename.startswith(self._within) or spent != self._spent:
            self._spent, self._since = spent, now
            return 0.0
        return now - self._since

    def _processor_time(self) -> int:
        return _processor_time(self._stat)


class SpinningDetector:
    """Watches one thread that stays on one line and works: so does a host that waits for its GPU, as CUDA spins.

    Only who knows that the GPU is not done can tell that from long computing in one call of C.
    """

    def __init__(self, thread: int, native: int) -> None:
        self._thread = thread
        self._stat = f"/proc/self/task/{native}/stat"
        self._line: tuple[int, int] | None = None
        self._since = self._worked_at = 0.0
        self._spent = 0

    def seconds(self) -> float:
        """Seconds, over the calls so far, that it has worked on the line it is on; 0.0 when it sleeps or has moved."""
        frame = sys._current_frames().get(self._thread)
        now, spent = time.monotonic(), abs(_processor_time(self._stat))
        if spent != self._spent:
            self._spent, self._worked_at = spent, now
        line = None if frame is None else (id(frame), frame.f_lineno)
        if line != self._line or now - self._worked_at > ASLEEP:
            self._line, self._since = line, now
        return now - self._since


def _processor_time(stat_of_thread: str) -> int:
    try:
        with open(stat_of_thread, encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):  # the thread has ended, before or while its file was read
        return -1
    return int(fields[11]) + int(fields[12]) if fields[0] in "SD" else -2 - time.monotonic_ns()
