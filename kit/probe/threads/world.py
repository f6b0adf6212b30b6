"""A default group for each thread of one process, so that plain torch.distributed code can be many ranks in it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from kit.probe.backend import NAME, ObservedGroup, Watch
from kit.probe.threads.threaded import Unsent
from kit.probe.world import PATIENCE, World, install

_here = threading.local()


class ThreadWorld(World):
    """The world of the calling thread, which is a rank from now on."""

    def __init__(self, rank: int, watch: Watch) -> None:
        _here.world = self
        super().__init__(rank, "gloo", watch)

    @property
    def watch(self) -> Watch:
        return self._watch

    def _take_charge(self) -> dict[str, Callable[..., Any]]:
        return _once()

    def meeting(self) -> AbstractContextManager[None]:
        return nullcontext()  # no connection is made, so nobody can get into one

    def _init(self, store: str) -> None:
        """`store`: a name for this world; nothing is met there, since the groups are made of nothing."""
        self._originals["init_process_group"](
            self.backend,
            store=dist.PrefixStore(store, dist.HashStore()),
            rank=self.rank,
            world_size=self.size,
            timeout=PATIENCE,
        )


@cache
def _once() -> dict[str, Callable[..., Any]]:
    """Makes this process one of threads. There is no way back, so it is a process of its own."""
    from torch.testing._internal.distributed.multi_threaded_pg import ThreadLocalWorld  # torch's own, for its tests

    setattr(c10d, "_world", ThreadLocalWorld())  # noqa: B010
    by_name: Any = torch._C._distributed_c10d
    by_name._set_thread_isolation_mode(True)  # each thread has a group "0"
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
    return install(lambda: _here.world)


def _create(options: Any, _: Any = None) -> ObservedGroup:
    ranks = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))
    watch: Watch = _here.world.watch
    with watch.observer.joining(options.group_id, ranks) if watch.observer is not None else nullcontext():
        inner: Any = Unsent()
    return ObservedGroup(inner, options.group_rank, ranks, options.group_id, watch)
