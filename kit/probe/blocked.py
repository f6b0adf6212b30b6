"""Seeing from outside a thread that it stands still inside torch's C++ code."""

from __future__ import annotations

import os
import sys
import time

import torch

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
        try:
            with open(self._stat, encoding="ascii") as stat:
                fields = stat.read().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # the thread has ended, before or while its file was read
            return -1
        return int(fields[11]) + int(fields[12]) if fields[0] in "SD" else -2 - time.monotonic_ns()
