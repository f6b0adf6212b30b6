"""Where answers run: ranks behind the strongest walls that this machine gives."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import psutil

if TYPE_CHECKING:
    from kit.classroom.handins import Answer
    from kit.grade.exercise import Runner

MEMORY = 1_500_000_000  # bytes: four ranks with torch, and what they talk through


class Ranks(Protocol):
    """Where answers run, one after the other; nothing of one is there for the next."""

    def runner(self, answer: Answer, deadline: float, /) -> Runner:
        """How this answer is run until the deadline, by `time.monotonic`."""


Ground = Callable[[], AbstractContextManager[Ranks]]
"""Makes ranks for one worker."""


@dataclass(frozen=True)
class Walls:
    """What stands between learners' code and everything else. not_held: sentences, for what it does not keep out."""

    name: str
    not_held: tuple[str, ...]
    ranks: Ground


def at_once(runs: int) -> int:
    """How many answers to run at once: as far as cores and free memory allow."""
    available = psutil.virtual_memory().available // MEMORY
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(max(1, min(runs, cores, available)))
