"""A process whose threads are the ranks of one recorded function: forked by the host agent, gone when that is done.

The coordinator that processes have says here, too, which operations match, which do not fit and when nobody can go on.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kit.clusters.coordinator.coordinator import Coordinator
from kit.clusters.coordinator.run import ForKernel, ForRank
from kit.clusters.host.rank_process import break_away, import_path
from kit.clusters.request import Settings
from kit.probe import blackbox
from kit.probe.accelerator import CPU
from kit.probe.backend import Watch
from kit.probe.blackbox import Blackbox, BlackboxReader
from kit.probe.run import could_not_begin
from kit.probe.threads.run import ThreadRun, meet
from kit.probe.threads.turns import Turns
from kit.probe.threads.world import ThreadWorld
from kit.probe.world import seed_everything
from kit.protocol.messages import (
    Alive,
    AtStop,
    Begin,
    FromThreads,
    Launch,
    Operations,
    Over,
    Refuse,
    Run,
    RunNews,
    RunThreads,
    Settled,
    Unloaded,
)
from kit.protocol.wire import Channel

PULSE = 1.0  # s between signs of life

Kernel = Channel[RunThreads, FromThreads]


def threads_main(line: str, settings: Settings, not_mine: Iterable[int], agent: int) -> None:
    """In the fork: does what the kernel, at the other end of the socket `line`, orders, and ends."""
    break_away(not_mine, agent)
    import_path(settings)
    if os.path.isdir(settings.directory):
        os.chdir(settings.directory)
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(line)
    kernel = Kernel(sock)
    order = kernel.receive()
    if order is not None:
        threading.Thread(target=_end_with, args=(kernel,), daemon=True).start()
        ThreadHost(order, kernel).run()


def _end_with(kernel: Kernel) -> None:
    """A kernel that has gone, or has let go of this run, says no more."""
    while kernel.receive() is not None:
        continue
    os._exit(0)


class ThreadHost:
    """The ranks of one run and their coordinator. Its methods run in the thread of the rank whose turn it is."""

    def __init__(self, order: RunThreads, kernel: Kernel) -> None:
        self._order = order
        self._kernel = kernel
        self._size = size = order.task.size
        self._memory = blackbox.create(size)
        self._coordinator = Coordinator(size, BlackboxReader(self._memory))
        self._turns = Turns(size)
        self._runs: dict[int, ThreadRun] = {}
        self._threads: dict[int, int] = {}
        self._settled: Settled | None = None
        self._heard = time.monotonic()
        os.environ.update(WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size))

    def run(self) -> None:
        """Until nobody can go on, or a rank has computed for too long."""
        stepped = replace(self._order.task, mode="step")  # one motion that has no deadline
        self._coordinator.hear(Run(stepped, self._order.arguments, patience=1 << 60), time.monotonic_ns())
        for rank in range(self._size):
            threading.Thread(target=self._rank, args=(rank,), daemon=True, name=f"rank {rank}").start()
        self._turns.begin()
        verdict = None
        while verdict is None and not self._turns.still.wait(PULSE):
            self._kernel.send(Alive())
            if time.monotonic() - self._heard > self._order.patience:
                verdict = self._too_long()
        if self._settled is not None:
            states, verdict = self._settled.states, verdict or self._settled.verdict
        else:
            states = self._coordinator.states(time.monotonic_ns())
        for rank, run in sorted(self._runs.items()):
            self._kernel.send(Operations(run.id, rank, run.ledger.facts()))
        self._kernel.send(Over(states, verdict))
        os._exit(0)  # whoever waits or computes is not asked

    def _rank(self, rank: int) -> None:
        """One rank from beginning to end, in its thread."""
        self._turns.enter(rank)
        self._threads[rank] = threading.get_ident()
        try:
            run = self._begin(rank)
        except Exception as error:  # anything a learner's module does while it is imported
            self._hear(could_not_begin(self._order.task, rank, error))
        else:
            run.body()
        self._turns.leave(rank)

    def _begin(self, rank: int) -> ThreadRun:
        watch = Watch(CPU)
        seed_everything(rank, CPU)
        world = ThreadWorld(rank, watch)
        world.join("world", self._size)
        order = Begin(self._order.task, self._order.arguments[rank])
        run = ThreadRun(self._turns, order, rank, self._hear, Blackbox(self._memory, rank), CPU)
        self._runs[rank] = watch.observer = run
        world.during_run(threading.get_ident())
        return run

    def _hear(self, news: RunNews) -> None:
        self._heard = time.monotonic()
        launched = []
        for delivery in self._coordinator.hear(news, time.monotonic_ns()):
            match delivery:
                case ForKernel(Settled() as settled):
                    self._settled = settled
                case ForKernel(AtStop() | Unloaded() as told):
                    self._kernel.send(told)
                case ForKernel():
                    continue  # the kernel is told of operations at the end
                case ForRank(rank, Refuse(index=index, sentence=sentence)):
                    self._runs[rank].works[index].refuse(sentence)
                case ForRank(rank, Launch(index=index, source=source)):
                    work = self._runs[rank].works[index]
                    if source is not None:
                        self._runs[rank].sender_found(work, source)
                    launched.append(work)
                case ForRank():
                    raise AssertionError(f"no thread is told {delivery.message!r}")
        if launched:
            meet(launched)

    def _too_long(self) -> str:
        rank = self._turns.now
        if rank not in self._runs:
            return f"rank {rank} has been loading the function for {self._order.patience:g} s."
        frames: Any = sys._current_frames()
        place = self._runs[rank].code.place(frames.get(self._threads[rank]))
        return (
            f"rank {rank} has worked for {self._order.patience:g} s without talking to another"
            f"{f' ({place.words()})' if place else ''}; ranks that are threads take turns, so all others stand still. "
            "Give it longer with kit.options(threads=True, patience=600), or find out what it does there."
        )
