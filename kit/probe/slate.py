"""What a run may change of the process it runs in, so that the next one finds it as the first did."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import warnings
from collections.abc import Iterable
from itertools import takewhile
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from kit.probe.accelerator import Accelerator
from kit.probe.own import is_own
from kit.probe.world import seed_everything

# Where code that tries things out puts functions of its own in place of torch's.
_TORCH: tuple[Any, ...] = (
    torch,
    torch.Tensor,
    torch.autograd,
    torch.nn,
    torch.nn.Module,
    torch.nn.functional,
    torch.optim,
    torch.optim.Optimizer,
)
_DISTRIBUTED: tuple[Any, ...] = (dist, c10d, dist.ProcessGroup)  # a rank's world has functions of its own there

Functions = list[tuple[Any, dict[str, Any]]]  # by owner and name

_shared: Functions = []


def look() -> None:
    """Sees torch's functions on behalf of all ranks that will be forked from this process: to look at these thousands
    writes to the memory they lie in, of which each rank would get a copy of its own.
    """
    _shared[:] = _functions(_TORCH)


def _functions(owners: Iterable[Any]) -> Functions:
    return [(owner, {name: value for name, value in vars(owner).items() if callable(value)}) for owner in owners]


class Slate:
    """The process as it is now. `clean` brings it back to that, with random numbers that no run has drawn."""

    def __init__(self, rank: int, accelerator: Accelerator) -> None:
        self._rank, self._accelerator = rank, accelerator
        self._folder = os.getcwd()
        self._environment = dict(os.environ)
        self._path = list(sys.path)
        self._newest = next(reversed(sys.modules))
        self._filters = list(warnings.filters)
        self._threads = torch.get_num_threads()
        self._dtype = torch.get_default_dtype()
        self._precision = torch.get_float32_matmul_precision()
        self._functions = [*(_shared or _functions(_TORCH)), *_functions(_DISTRIBUTED)]

    def clean(self) -> None:
        for child in multiprocessing.active_children():
            child.kill()
            child.join()
        for name in self._imported():  # which may be others by now
            del sys.modules[name]
        for owner, functions in self._functions:
            _put_back(owner, functions)
        for name in os.environ.keys() - self._environment.keys():
            del os.environ[name]
        for name, value in self._environment.items() - os.environ.items():
            os.environ[name] = value
        if os.path.isdir(self._folder):
            os.chdir(self._folder)
        sys.path[:] = self._path
        warnings.filters[:] = self._filters  # type: ignore[index]
        torch.set_num_threads(self._threads)
        torch.set_default_dtype(self._dtype)
        torch.set_float32_matmul_precision(self._precision)
        if torch.are_deterministic_algorithms_enabled():  # to ask costs nothing; to set loads torch's compiler, 2 s
            torch.use_deterministic_algorithms(False)
        torch.set_anomaly_enabled(False)
        gc.enable()
        seed_everything(self._rank, self._accelerator)

    def _imported(self) -> list[str]:
        """Own modules that came since. Those that every rank shares are not looked at: a look copies their memory."""
        since = list(takewhile(lambda name: name != self._newest, reversed(sys.modules)))  # in the order of coming
        return [name for name in since if is_own(sys.modules[name])]


def _put_back(owner: Any, functions: dict[str, Any]) -> None:
    now = dict(vars(owner))
    for name, value in functions.items():
        if now.get(name) is not value:
            setattr(owner, name, value)
    for name in now.keys() - functions.keys():
        if callable(now[name]) and any(name in vars(base) for base in getattr(owner, "__mro__", ())[1:]):
            delattr(owner, name)  # it hides what the class has from another
