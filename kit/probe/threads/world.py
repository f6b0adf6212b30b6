"""A default group for each thread of one process, so that plain torch.distributed code can be many ranks in it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, cast

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from kit.probe.backend import Watch, register
from kit.probe.world import World, install

_here = threading.local()


class ThreadWorld(World):
    """The world of the calling thread, which is a rank from now on."""

    def __init__(self, rank: int, watch: Watch) -> None:
        _here.world = self
        super().__init__(rank, "gloo", watch)

    def _take_charge(self) -> dict[str, Callable[..., Any]]:
        return _isolate_threads()

    def meeting(self) -> AbstractContextManager[None]:
        return nullcontext()  # no connection is made, so nobody can get into one

    def rendezvous(self, name: str) -> dist.Store:
        """In name only: no rank connects to another."""
        return dist.PrefixStore(name, dist.HashStore())


@cache
def _isolate_threads() -> dict[str, Callable[..., Any]]:
    """Gives each thread its own groups. There is no way back, so the process is kept for this."""
    from torch.testing._internal.distributed.multi_threaded_pg import ThreadLocalWorld  # torch's own, for its tests

    setattr(c10d, "_world", ThreadLocalWorld())  # noqa: B010
    by_name: Any = torch._C._distributed_c10d
    by_name._set_thread_isolation_mode(True)  # each thread has a group "0"
    register(lambda: cast("Watch", _here.world.watch), lambda options: cast("dist.ProcessGroup", CallsHandedBack()))
    return install(lambda: cast("World", _here.world))


class CallsHandedBack:
    """Takes the place of a real group: sends nothing, and returns the arguments of every call."""

    _device_types = (torch.device("cpu"),)

    def __getattr__(self, method: str) -> Callable[..., tuple[Any, ...]]:
        return lambda *arguments, **options: arguments

    def _get_backend(self, device: torch.device) -> CallsHandedBack:
        return self
