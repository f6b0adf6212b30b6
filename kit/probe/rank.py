"""A rank from its fork on: one control thread that listens to the host agent, one worker thread for each run.

The main thread is left to the ipyparallel engine.
"""

from __future__ import annotations

import os
import select
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from kit.probe.backend import Watch
from kit.probe.blackbox import Blackbox
from kit.probe.links.timed import TimedRun
from kit.probe.memory.accounted import AccountedRun
from kit.probe.record import RecordRun
from kit.probe.step import StepRun
from kit.probe.wire import Channel, Message
from kit.probe.world import World, seed_everything
from kit.trace.facts import Failure

TICK = 0.1  # s between looks at a run that may stand still


class Rank:
    """Everything a rank does besides being an engine. `start` returns at once; 'ready' is posted when the group
    stands.
    """

    def __init__(
        self,
        number: int,
        world: int,
        channel: Channel,
        blackbox: Any,
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
        self._device = torch.device(device)
        self._watch = Watch()
        self._world = World(number, backend, self._watch)
        self._run: StepRun | RecordRun | None = None
        self._worker: threading.Thread | None = None

    def start(self) -> None:
        seed_everything(self.number)
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // self._size))
        self._world.join(self._store, self._size)
        self._channel.send({"kind": "ready", "rank": self.number, "pid": os.getpid()})
        threading.Thread(target=self._live, name="control", daemon=True).start()

    def _live(self) -> None:
        """A rank that nobody can speak to any more must not stay: its agent sees it end, and says so."""
        try:
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

    def _obey(self, message: Message) -> None:
        kind = message["kind"]
        if kind == "run":
            self._begin(message)
            return
        run = self._run
        if run is None or message["run"] != run.id:
            return  # of a run that has ended
        if kind == "abort":
            run.abort(message["reason"])
        elif isinstance(run, RecordRun) and kind == "report":
            run.report()
        elif isinstance(run, StepRun) and kind in ("move", "launch", "refuse"):
            getattr(run, kind)(message)
        else:
            raise AssertionError(f"a rank cannot {kind}")

    def _begin(self, message: Message) -> None:
        before = self._worker
        self._run = None
        self._worker = threading.Thread(target=self._work, args=(message, before), name="worker", daemon=True)
        self._worker.start()

    def _work(self, message: Message, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        kind = _kind_of(message)
        try:
            self._blackbox.clear()
            self._world.during_run(None)
            if message["store"] is not None:
                self._world.join(message["store"], message["size"])
            run = kind(message, self.number, self._channel.send, self._blackbox, self._device)
        except Exception as error:  # anything a learner's module does while it is imported
            self._could_not_begin(message, error)
            return
        self._world.during_run(threading.get_ident())
        self._watch.observer = self._run = run
        self._channel.send({"kind": "begun", "run": run.id})
        try:
            run.body()
        finally:
            self._watch.observer = None
            self._world.during_run(None)
            ended = {"kind": "ended", "run": run.id, "clean": not self._world.touched and run.aborted is None}
            self._channel.send(ended)

    def _could_not_begin(self, message: Message, error: Exception) -> None:
        text = "".join(traceback.format_exception(error))
        hint = f"rank {self.number} could not load the function: {error}"
        failure = Failure(type(error).__name__, hint, text, None)
        self._channel.send({"kind": "unloaded", "run": message["run"], "error": failure, "time": time.monotonic_ns()})


def _kind_of(order: Message) -> type[StepRun] | type[RecordRun]:
    if order["mode"] == "step":
        return StepRun
    if "account" in order:
        return AccountedRun
    return RecordRun if order["links"] is None else TimedRun
