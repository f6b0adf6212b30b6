"""When a cluster counts as idle, and the watch that stops one that was told to stop itself.

Idle is a cluster to which nothing is said and from which nothing is heard, on which no recorded run is under way, and
whose ranks do not compute. A session whose ranks stand still while nobody moves them is idle too: its person has left.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import psutil

from kit.clusters.connection import Connection
from kit.protocol.messages import Ended, Forked, HostLost, RankLost, Run, ToHost, ToKernel, Unloaded

BUSY = 0.1  # of one core: more than the ranks' heartbeats take
LOOKS = 20  # in the time after which a cluster stops


def checked_minutes(value: Any) -> float | None:
    """Minutes as a float; None for None and 0, which mean: never. ValueError with the fix for anything else."""
    if value is None or (not isinstance(value, bool) and value == 0):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(
            f"idle minutes must be a number above 0, not {value!r}: write stop_when_idle(30), "
            "or stop_when_idle(None) to keep the cluster until it is stopped"
        )
    return float(value)


class Activity:
    """Since when nothing has happened. `now` and `cpu` are seconds; who calls `look` decides how often."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._recorded: set[int] = set()  # ranks in a run at full speed
        self._cpu = 0.0
        self._looked = now

    def note(self, now: float, message: ToHost | ToKernel | None = None) -> None:
        """The kernel asks something of the ranks, something comes from the host, or a person uses the cluster."""
        self._since = now
        match message:
            case Run(task):
                self._recorded = set(range(task.size)) if task.mode == "record" else set()
            case Ended() | Unloaded() | RankLost():
                self._recorded.discard(message.rank)
            case Forked() | HostLost():
                self._recorded.clear()
            case _:
                return  # a sign of life like any other

    def look(self, now: float, cpu: float) -> float:
        """Seconds it has been idle. `cpu`: seconds the ranks have computed in their life."""
        elapsed, self._looked = now - self._looked, now
        used, self._cpu = cpu - self._cpu, cpu
        if self._recorded or used > BUSY * elapsed:
            self._since = now
        return now - self._since


class IdleWatch:
    """A thread that looks at a cluster now and then and calls `stop(minutes)` once, when it was idle for so long."""

    def __init__(
        self, minutes: float, connection: Connection, pids: Callable[[], Iterable[int]], stop: Callable[[float], None]
    ) -> None:
        self.minutes = minutes
        self._pids = pids
        self._stop = stop
        self._lock = threading.Lock()
        self._activity = Activity(time.monotonic())
        self._over = threading.Event()
        self._leave = (connection.subscribe(self.note), connection.subscribe_to_sent(self.note))
        threading.Thread(target=self._watch, daemon=True, name="stop the cluster when idle").start()

    def note(self, message: ToHost | ToKernel | None = None) -> None:
        with self._lock:
            self._activity.note(time.monotonic(), message)

    def end(self) -> None:
        if self._over.is_set():
            return
        self._over.set()
        for leave in self._leave:
            leave()

    def _watch(self) -> None:
        while not self._over.wait(self.minutes * 60 / LOOKS):
            cpu = sum(map(_cpu_seconds, self._pids()))
            with self._lock:
                idle = self._activity.look(time.monotonic(), cpu)
            if idle >= self.minutes * 60:
                self.end()
                self._stop(self.minutes)


def _cpu_seconds(pid: int) -> float:
    """Seconds a process has computed; 0 when it is gone."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)
