"""A process whose threads are the ranks of one recorded function: forked by the host agent, gone when that is done.

The same referee that the agent has for processes says here which operations have met, which do not fit and when
nobody can go on.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from typing import Any

import torch

from kit.cluster.child import Settings, break_away, import_path
from kit.cluster.referee import Referee
from kit.probe import blackbox
from kit.probe.backend import Watch
from kit.probe.blackbox import Blackbox
from kit.probe.threads.threaded import ThreadRun, meet, refused
from kit.probe.threads.turns import Turns
from kit.probe.threads.world import ThreadWorld
from kit.probe.wire import Channel, Message
from kit.probe.world import seed_everything
from kit.trace.facts import Failure
from kit.trace.sentences import line_text

RUN = 1  # the only one of its process
PULSE = 1.0  # s between signs of life
CPU = torch.device("cpu")


def live(line: str, settings: Settings, not_mine: Iterable[int], agent: int) -> None:
    """In the fork: does what the kernel, at the other end of the socket `line`, orders, and ends."""
    break_away(not_mine, agent)
    import_path(settings)
    if os.path.isdir(settings.directory):
        os.chdir(settings.directory)
    kernel = socket.socket(socket.AF_UNIX)
    kernel.connect(line)
    channel = Channel(kernel)
    order = channel.receive()
    if order is not None:
        threading.Thread(target=_end_with, args=(channel,), daemon=True).start()
        Host(order, channel).run()


def _end_with(kernel: Channel) -> None:
    """A kernel that has gone, or has let go of this run, says no more."""
    while kernel.receive() is not None:
        continue
    os._exit(0)


class Host:
    """The ranks of one run and their referee. Its methods run in the thread of the rank whose turn it is."""

    def __init__(self, order: Message, kernel: Channel) -> None:
        self._order = order
        self._kernel = kernel
        self._size: int = order["size"]
        self._memory = blackbox.create(self._size)
        self._referee = Referee(self._size, self._memory)
        self._turns = Turns(self._size)
        self._runs: dict[int, ThreadRun] = {}
        self._threads: dict[int, int] = {}
        self._settled: Message = {}
        self._heard = time.monotonic()
        os.environ.update(WORLD_SIZE=str(self._size), LOCAL_WORLD_SIZE=str(self._size))

    def run(self) -> None:
        """Until nobody can go on, or a rank has computed for too long."""
        nothing = (None,) * self._size
        endless = {"motion": 1, "patience": 1 << 60, "arguments": nothing}
        self._referee.from_kernel({"kind": "run", "run": RUN, "mode": "step", "size": self._size, **endless})
        for rank in range(self._size):
            threading.Thread(target=self._rank, args=(rank,), daemon=True, name=f"rank {rank}").start()
        self._turns.begin()
        verdict = None
        while verdict is None and not self._turns.still.wait(PULSE):
            self._kernel.send({"kind": "alive"})
            if time.monotonic() - self._heard > self._order["patience"]:
                verdict = self._too_long()
        states = self._settled.get("states") or self._referee.states()
        for rank, run in sorted(self._runs.items()):
            self._kernel.send({"kind": "operations", "rank": rank, "operations": run.ledger.facts()})
        verdict = verdict or self._settled.get("verdict")
        self._kernel.send({"kind": "over", "states": states, "verdict": verdict})
        os._exit(0)  # whoever waits or computes is not asked

    def _rank(self, rank: int) -> None:
        """One rank from beginning to end, in its thread."""
        self._turns.enter(rank)
        self._threads[rank] = threading.get_ident()
        try:
            run = self._begin(rank)
        except Exception as error:  # anything a learner's module does while it is imported
            hint = f"rank {rank} could not load the function: {error}"
            failure = Failure(type(error).__name__, hint, "".join(traceback.format_exception(error)), None)
            self._hear(rank, {"kind": "unloaded", "run": RUN, "error": failure, "time": time.monotonic_ns()})
        else:
            run.body()
        self._turns.leave(rank)

    def _begin(self, rank: int) -> ThreadRun:
        watch = Watch()
        seed_everything(rank)
        world = ThreadWorld(rank, watch)
        world.join("world", self._size)
        order = {**self._order, "run": RUN, "arguments": self._order["arguments"][rank]}
        box = Blackbox(self._memory, rank)
        run = ThreadRun(self._turns, order, rank, lambda message: self._hear(rank, message), box, CPU)
        self._runs[rank] = watch.observer = run
        world.during_run(threading.get_ident())
        return run

    def _hear(self, rank: int, message: Message) -> None:
        self._heard = time.monotonic()
        launched = []
        for destination, order in self._referee.from_rank(rank, message):
            if destination == "kernel":
                self._pass_on(order)
                continue
            work = self._runs[int(destination)].works[order["index"]]
            if order["kind"] == "refuse":
                refused(work, order)
                continue
            if order.get("source") is not None:
                work.came_from(order["source"])
            launched.append(work)
        if launched:
            meet(launched)

    def _pass_on(self, message: Message) -> None:
        """To the kernel, which is told of operations at the end."""
        if message["kind"] == "settled":
            self._settled = message
        elif message["kind"] in ("stop", "unloaded"):
            self._kernel.send(message)

    def _too_long(self) -> str:
        rank = self._turns.now
        if rank not in self._runs:
            return f"rank {rank} has been loading the function for {self._order['patience']:g} s."
        frames: Any = sys._current_frames()
        line = line_text(self._runs[rank].code.place(frames.get(self._threads[rank])))
        return (
            f"rank {rank} has worked for {self._order['patience']:g} s without talking to another"
            f"{f' ({line})' if line else ''}; ranks that are threads take turns, so all others stand still. "
            "Give it longer with kit.threads(..., patience=600), or find out what it does there."
        )
