"""When a cluster counts as idle, and the watch that stops one that was told to stop itself.

Idle is a cluster to which nothing is said and from which nothing is heard, on which no recorded run is under way, and
whose ranks do not compute. A session whose ranks stand still while nobody moves them is idle too: its person has left.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kit.protocol.messages import Ended, Forked, HostLost, RankLost, Run, ToHost, ToKernel, Unloaded

if TYPE_CHECKING:
    from kit.clusters.cluster import Cluster

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

    def said(self, message: ToHost, now: float) -> None:
        """The kernel asks something of the ranks."""
        self._since = now
        if isinstance(message, Run):
            self._recorded = set(range(message.task.size)) if message.task.mode == "record" else set()

    def heard(self, message: ToKernel, now: float) -> None:
        """Something came from the host."""
        self._since = now
        match message:
            case Ended() | Unloaded() | RankLost():
                self._recorded.discard(message.rank)
            case Forked() | HostLost():
                self._recorded.clear()
            case _:
                return  # a sign of life like any other

    def touched(self, now: float) -> None:
        """A person used the cluster in another way."""
        self._since = now

    def look(self, now: float, cpu: float) -> float:
        """Seconds it has been idle. `cpu`: seconds the ranks have computed in their life."""
        elapsed, self._looked = now - self._looked, now
        used, self._cpu = cpu - self._cpu, cpu
        if self._recorded or used > BUSY * elapsed:
            self._since = now
        return now - self._since


class IdleWatch:
    """A thread that looks at a cluster now and then and calls `stop(minutes)` once, when it was idle for so long."""

    def __init__(self, cluster: Cluster, minutes: float, stop: Callable[[float], None]) -> None:
        self.minutes = minutes
        self._cluster = cluster
        self._stop = stop
        self._lock = threading.Lock()
        self._activity = Activity(time.monotonic())
        self._over = threading.Event()
        connection = cluster.connection
        self._leave = (connection.subscribe(self._heard), connection.subscribe_to_sent(self._said))
        threading.Thread(target=self._watch, daemon=True, name="stop the cluster when idle").start()

    def touched(self) -> None:
        with self._lock:
            self._activity.touched(time.monotonic())

    def end(self) -> None:
        if self._over.is_set():
            return
        self._over.set()
        for leave in self._leave:
            leave()

    def _heard(self, message: ToKernel) -> None:
        with self._lock:
            self._activity.heard(message, time.monotonic())

    def _said(self, message: ToHost) -> None:
        with self._lock:
            self._activity.said(message, time.monotonic())

    def _watch(self) -> None:
        while not self._over.wait(self.minutes * 60 / LOOKS):
            cpu = sum(map(_cpu_seconds, self._cluster.pids))
            with self._lock:
                idle = self._activity.look(time.monotonic(), cpu)
            if idle >= self.minutes * 60:
                self.end()
                self._stop(self.minutes)


def _cpu_seconds(pid: int) -> float:
    """Seconds a process has computed; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
