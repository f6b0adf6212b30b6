"""Ranks as threads of one process, one at a time: a rank works until it must wait for others, then the next one does.

Because only one of them runs, each can have for its turn what processes have for themselves and threads would share:
the learner's modules and classes, the state of random generators, the output streams, the environment, the working
directory. What a rank changes in an installed package (an attribute that it puts into `torch`, say) is changed for all.
And when all of them wait, that is a fact and no guess.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Set
from types import ModuleType
from typing import Any

import numpy as np
import torch

from kit.probe.arrival import keep_classes_in
from kit.probe.own import own_modules


class Turns:
    """Who may run. Every method but `begin` is called by the rank's own thread, `wake` by that of the rank whose turn
    it is.
    """

    def __init__(self, size: int) -> None:
        self.still = threading.Event()  # nobody can go on: all have ended or wait
        self.now: int | None = None  # whose turn it is
        self._gates = [threading.Semaphore(0) for _ in range(size)]
        self._ready = deque(range(size))
        self._asleep: set[int] = set()
        self._own = [Own(rank) for rank in range(size)]

    def begin(self) -> None:
        """Lets the first rank run, once all threads are there or about to come."""
        self._next()

    def enter(self, rank: int) -> None:
        """The thread of a rank begins: returns when it is its turn."""
        self._take(rank)

    def sleep(self, rank: int, over: Callable[[], bool]) -> None:
        """Lets others run until `over()`, which somebody's `wake(rank)` says to look at."""
        while not over():
            self._asleep.add(rank)
            self._give(rank)

    def wake(self, rank: int) -> None:
        if rank in self._asleep:
            self._asleep.discard(rank)
            self._ready.append(rank)

    def pass_on(self, rank: int) -> None:
        """Lets all others that can run have a turn first."""
        self._ready.append(rank)
        self._give(rank)

    def leave(self, rank: int) -> None:
        """The thread of a rank ends."""
        self._own[rank].put_away()
        self._next()

    def _give(self, rank: int) -> None:
        self._own[rank].put_away()
        self._next()
        self._take(rank)

    def _take(self, rank: int) -> None:
        self._gates[rank].acquire()
        self._own[rank].take_out()

    def _next(self) -> None:
        if self._ready:
            self.now = self._ready.popleft()
            self._gates[self.now].release()
        else:
            self.now = None
            self.still.set()


class Own:
    """What a rank has for itself while it runs; it begins with what the thread has that makes this."""

    def __init__(self, rank: int) -> None:
        self._environment = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        self._classes: Any = weakref.WeakValueDictionary()
        self._modules: dict[str, ModuleType] = {}
        self._common = own_modules().keys()  # there before any rank
        self._names: Set[str] = frozenset()
        self._loaded = 0  # modules, when their names were found
        self._folder = os.getcwd()
        self._kept = _streams_and_numbers()

    def put_away(self) -> None:
        self._environment = dict(os.environ)
        self._folder = os.getcwd()
        if len(sys.modules) != self._loaded:  # else nothing was imported since: to look at all of them takes long
            self._names, self._loaded = own_modules().keys() - self._common, len(sys.modules)
        self._modules = {name: sys.modules.pop(name) for name in self._names if name in sys.modules}
        self._kept = _streams_and_numbers()

    def take_out(self) -> None:
        if os.environ != self._environment:
            os.environ.clear()
            os.environ.update(self._environment)
        if os.getcwd() != self._folder:
            os.chdir(self._folder)
        sys.modules.update(self._modules)
        keep_classes_in(self._classes)
        streams, dtype, mine, numpys, torchs = self._kept
        sys.stdout, sys.stderr, warnings.showwarning = streams
        torch.set_default_dtype(dtype)
        random.setstate(mine)
        np.random.set_state(numpys)
        torch.set_rng_state(torchs)


def _streams_and_numbers() -> tuple[Any, ...]:
    streams = (sys.stdout, sys.stderr, warnings.showwarning)
    return streams, torch.get_default_dtype(), random.getstate(), np.random.get_state(), torch.get_rng_state()
