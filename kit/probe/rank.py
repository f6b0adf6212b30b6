"""A rank from its fork on: one control thread that listens to the host agent, one worker thread for each run.

The main thread is left to the ipyparallel engine.
"""

from __future__ import annotations

import mmap
import os
import select
import threading
import traceback
from pathlib import Path

import torch
import torch.distributed as dist

from kit.probe import accelerator, peers
from kit.probe.backend import Watch
from kit.probe.blackbox import Blackbox
from kit.probe.links.timed import TimedRun
from kit.probe.memory.account import AccountedRun
from kit.probe.record import RecordRun
from kit.probe.run import could_not_begin
from kit.probe.slate import Slate
from kit.probe.step import StepRun
from kit.probe.world import PATIENCE, World, seed_everything
from kit.protocol.messages import (
    Begin,
    CutOff,
    Ended,
    FromRank,
    Go,
    Intruded,
    Launch,
    Leave,
    Ready,
    Refuse,
    ReportPlease,
    Task,
    ToRank,
    Where,
    WherePlease,
)
from kit.protocol.wire import Channel

TICK = 0.1  # s between looks at a run that may stand still


class Rank:
    """Everything a rank does besides being an engine. `start` returns at once; 'ready' is posted when the group
    stands.
    """

    def __init__(
        self,
        number: int,
        world: int,
        channel: Channel[ToRank, FromRank],
        blackbox: mmap.mmap,
        run_dir: str | Path,
        generation: int,
        device: str = "cpu",
        backend: str = "gloo",
    ) -> None:
        self.number = number
        self._size = world
        self._channel = channel
        self._blackbox = Blackbox(blackbox, number)
        self._store = str(Path(run_dir) / f"world-{generation}-0")
        self._accelerator = accelerator.of(torch.device(device))
        self._watch = Watch(self._accelerator)
        self._world = World(number, backend, self._watch)
        self._run: StepRun | RecordRun | None = None
        self._worker: threading.Thread | None = None
        self._beginning = threading.Lock()
        self._early: list[Go] = []  # for a run whose function is still being loaded

    def start(self) -> None:
        seed_everything(self.number, self._accelerator)
        self._accelerator.take()
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // self._size))
        try:
            self._join(self._store, self._size)
        except peers.Intruded as intruded:
            self._channel.send(Intruded(self.number, str(intruded)))
            raise
        self._slate = Slate(self.number, self._accelerator)
        self._channel.send(Ready(self.number))
        threading.Thread(target=self._live, name="control", daemon=True).start()

    def _join(self, store: str, size: int) -> None:
        """Joins a world once all its ranks are about to: who listened for them earlier would for strangers, too."""
        door = dist.FileStore(f"{store}.door", size)
        if door.add("here", 1) == size:
            door.set("all", "here")
        door.wait(["all"], PATIENCE)
        self._world.join(store, size)

    def _live(self) -> None:
        """A rank that nobody can speak to any more must not stay: its agent sees it end, and says so."""
        try:
            self._accelerator.take()
            self._listen()
        except BaseException:
            traceback.print_exc()
            os._exit(70)

    def _listen(self) -> None:
        waiter = select.poll()
        waiter.register(self._channel.fileno(), select.POLLIN)
        while True:
            busy = self._worker is not None and self._worker.is_alive()
            if waiter.poll(TICK * 1000 if busy else None):
                try:
                    messages = self._channel.pump()
                except EOFError:  # the agent is gone, and nobody is left to be a rank for
                    os._exit(0)
                for message in messages:
                    self._obey(message)
            if busy and self._run is not None:
                self._run.tick()

    def _obey(self, order: ToRank) -> None:
        if isinstance(order, Begin):
            self._begin(order)
            return
        with self._beginning:
            run = self._run
            if run is None and isinstance(order, Go):
                self._early.append(order)
                return
        if run is None and isinstance(order, WherePlease):
            self._channel.send(Where(order.run, self.number, None, None, loads=True))
        if run is None or order.run != run.id:
            return  # of a run that has ended
        match order:
            case Leave():
                run.abort(order.reason)
            case ReportPlease() if isinstance(run, RecordRun):
                run.report()
            case WherePlease() if isinstance(run, RecordRun):
                run.tell_where()
            case Go() if isinstance(run, StepRun):
                run.go(order)
            case Launch() if isinstance(run, StepRun):
                run.launch(order)
            case Refuse() if isinstance(run, StepRun):
                run.refuse(order)
            case CutOff() if isinstance(run, StepRun):
                run.cut_off(order)
            case _:
                raise AssertionError(f"{type(run).__name__} cannot obey {order!r}")

    def _begin(self, order: Begin) -> None:
        before, self._run, self._early = (self._worker, self._run), None, []
        self._worker = threading.Thread(target=self._work, args=(order, *before), name="worker", daemon=True)
        self._worker.start()

    def _work(self, order: Begin, before: threading.Thread | None, run_before: StepRun | RecordRun | None) -> None:
        self._accelerator.take()
        if before is not None:
            before.join()
        if run_before is not None:
            run_before.put_away()
        del run_before
        task = order.task
        kind = _kind_of(task)
        try:
            self._blackbox.clear()
            self._world.during_run(None)
            self._slate.clean()
            if task.store is not None:
                self._join(task.store, task.size)
            self._world.tell_size()
            run = kind(order, self.number, self._channel.send, self._blackbox, self._accelerator)
        except Exception as error:  # anything a learner's module does while it is imported
            self._channel.send(could_not_begin(task, self.number, error))
            return
        self._world.during_run(threading.get_ident())
        with self._beginning:
            self._watch.observer = self._run = run
            for told in self._early:
                if isinstance(run, StepRun) and told.run == run.id:
                    run.go(told)
        try:
            run.body()
        finally:
            self._watch.observer = None
            self._world.during_run(None)
            run.let_go()
            clean = not self._world.touched and run.world_is_whole and run.aborted is None
            self._channel.send(Ended(run.id, self.number, clean))


def _kind_of(task: Task) -> type[StepRun] | type[RecordRun]:
    if task.mode == "step":
        return StepRun
    if task.account is not None:
        return AccountedRun
    return RecordRun if task.links is None else TimedRun
