"""A session drawn from a seed: a program, how it is run, what befalls it and when.

The moments of faults are real time, so a seed gives the same session again but not the same interleaving.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from kit.run.live import LiveRunner
from tests.ranks.random_programs import PROGRAMS, Delay

MARK = "LOCKSTEP_RANDOM_FAULTS"  # in the environment of every process that the clusters start
SHORT = ("step", "over", "into", "to_collective")  # before the fault, which is to find the run under way
MOTIONS = (*SHORT, "out", "finish")
FAULTS = ("kill", "kill", "kill", "stop", "stop", "pause", "pause", "delay", "agent", "controller", "none")
STEPPED = ("start", "between", "during", "waiting", "reset")
RECORDED = ("between", "during", "waiting", "reset")
ROUNDS = {"step": (3, 0.0), "record": (30, 0.015)}  # of a program, and the pace of each in s

Move = tuple[str, tuple[int, ...] | None, float]  # how, which ranks, time-out in s


@dataclass(frozen=True)
class Plan:
    """One session, as a failure prints it."""

    seed: str
    world: int
    program: str
    mode: str  # 'step', 'record'
    fault: str  # one of FAULTS; a 'pause' is SIGSTOP and SIGCONT later
    victim: int
    moment: str  # one of STEPPED or RECORDED
    after: float  # s from the moment to the fault
    length: float  # s of a pause or a delay
    at: int  # which motion the fault belongs to
    recovery: str  # who resets: 'session', 'cluster', or 'none' (the next use has to manage)
    motions: tuple[Move, ...]

    @property
    def arguments(self) -> tuple[int, float, Delay]:
        rounds, pace = ROUNDS[self.mode]
        if self.fault == "delay":
            return rounds, pace, (self.victim, rounds // 2, self.length)
        if self.mode == "record" and self.moment == "waiting":  # for a rank that comes late
            return rounds, pace, ((self.victim + 1) % self.world, 0, 1.5)
        return rounds, pace, None


def draw(seed: str) -> Plan:
    choose = random.Random(seed)
    world = choose.randint(2, 4)
    mode = choose.choice(("step", "step", "record"))
    several = [None, *((rank,) for rank in range(world)), tuple(choose.sample(range(world), 2))]
    times = (0.2, 1.0, 3.0)
    at = choose.randrange(10)
    motions = [
        (choose.choice(MOTIONS if number > at else SHORT), choose.choice(several), choose.choice(times))
        for number in range(at + choose.randint(1, 15))
    ]
    return Plan(
        seed=seed,
        world=world,
        program=choose.choice(list(PROGRAMS)),
        mode=mode,
        fault=choose.choice(FAULTS),
        victim=choose.randrange(world),
        moment=choose.choice(STEPPED if mode == "step" else RECORDED),
        after=choose.choice([0.0, choose.uniform(0, 0.05), choose.uniform(0, 0.6)]),
        length=choose.choice([choose.uniform(0, 0.2), choose.uniform(0, 1.5)]),
        at=at,
        recovery=choose.choice(("session", "cluster", "none")),
        motions=tuple(motions),
    )


def marked(value: str) -> set[int]:
    """The live processes, by number, that were started with this mark."""
    found = set()
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == value and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process.pid)
        except (psutil.Error, OSError):  # gone meanwhile, or another user's
            continue
    return found


class Fault:
    """What befalls a session, once, in a thread of its own."""

    def __init__(self, cluster: LiveRunner, plan: Plan) -> None:
        self.kind = plan.fault
        self.victim = plan.victim
        self._cluster = cluster
        self._plan = plan
        self._thread = threading.Thread(target=self._strike, daemon=True)

    @property
    def words(self) -> str:
        """What must be said when the run does not come to its end."""
        known = {"kill": f"rank {self.victim} died", "agent": "agent", "controller": "controller"}
        stopped = f"rank {self.victim} is stopped" if self.kind in ("stop", "pause") else "no fault that may be said"
        return known.get(self.kind, stopped)

    def soon(self) -> None:
        """After the time that was drawn, and once; a late rank comes late by itself."""
        if self.kind not in ("delay", "none") and self._thread.ident is None:
            self._thread.start()

    def over(self) -> None:
        """Waits until it has happened; a pause has ended by then."""
        if self._thread.ident is not None:
            self._thread.join()

    def _strike(self) -> None:
        time.sleep(self._plan.after)
        number = signal.SIGSTOP if self.kind in ("stop", "pause") else signal.SIGKILL
        try:
            with self._held() as process:
                signal.pidfd_send_signal(process, number)
                if self.kind == "pause":
                    time.sleep(self._plan.length)
                    signal.pidfd_send_signal(process, signal.SIGCONT)
        except (ProcessLookupError, psutil.NoSuchProcess, StopIteration):  # gone before it could be hit, or meanwhile
            return

    @contextmanager
    def _held(self) -> Iterator[int]:
        """A descriptor of the process to hit, which is one of this test's whatever its number has become since."""
        pid = self._cluster.pids[self.victim]
        if self.kind in ("agent", "controller"):
            pid = next(pid for pid in self._cluster.processes if self.kind in psutil.Process(pid).cmdline())
        process = os.pidfd_open(pid)
        try:
            if psutil.Process(pid).environ().get(MARK) != os.environ[MARK]:
                raise ProcessLookupError
            yield process
        finally:
            os.close(process)
