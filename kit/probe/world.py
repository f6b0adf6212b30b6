"""The ranks' process groups: joined before the learner's code runs, so that a plain function can communicate at once.

Rendezvous is a file in the cluster's private folder. Code that calls `init_process_group` and `destroy_process_group`
itself, as scripts do, runs unchanged: its group is made through the same file, whatever address and port it names.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from kit.probe import placing
from kit.probe.accelerator import Accelerator
from kit.probe.backend import CONFIG, Watch, connected_group, register
from kit.probe.peers import only_ours
from kit.probe.staged import StagedGroup

PATIENCE = timedelta(days=7)  # ranks may stand still for as long as a person thinks; the coordinator finds hangs
_SEEN = ("gloo", "nccl", "xccl", "undefined", "cpu:gloo,cuda:nccl", "cpu:gloo,xpu:xccl")


class World:
    """This rank's default group: who is in it, and whether the learner's code has changed it."""

    def __init__(self, rank: int, backend: str, watch: Watch) -> None:
        self.rank = rank
        self.size = 0
        self.backend = backend
        self.touched = False  # groups were made or destroyed since `join`
        self.watch = watch
        self._store = ""
        self._count = 0
        self._worker: int | None = None
        self._originals = self._take_charge()

    def _take_charge(self) -> dict[str, Callable[..., Any]]:
        """From now on groups of this process are made by its worlds; what made them before comes back."""
        register(lambda: self.watch, self._real_group)
        return install(lambda: self)

    def _real_group(self, options: Any) -> Any:
        accelerator = self.watch.accelerator
        group = connected_group(options, nccl=self.backend == "nccl")
        return StagedGroup(group, accelerator) if self.backend == "gloo" and accelerator.runs_ahead else group

    def join(self, store: str, size: int) -> None:
        """Leaves whatever group there is and joins a new world of `size` ranks that meets in the file `store`."""
        self.leave()
        self._store, self._count, self.size = store, 0, size
        self.tell_size()
        self._init(store)
        self.touched = False

    def tell_size(self) -> None:
        """As a launcher does."""
        os.environ.update(WORLD_SIZE=str(self.size), LOCAL_WORLD_SIZE=str(self.size))

    def leave(self) -> None:
        if dist.is_initialized():
            self._originals["destroy_process_group"]()
        c10d._world.group_count = 0  # group names count up from here: they must be the same on all ranks

    def during_run(self, worker: int | None) -> None:
        """Calls of init and destroy by this thread's code are the learner's."""
        self._worker = worker

    def meeting(self) -> AbstractContextManager[None]:
        """Around the making of a group."""
        return only_ours()

    def rendezvous(self, name: str) -> dist.Store:
        """Where the ranks of a new group meet."""
        return dist.FileStore(name, self.size)

    def _init(self, name: str) -> None:
        self._originals["init_process_group"](
            self.backend, store=self.rendezvous(name), rank=self.rank, world_size=self.size, timeout=PATIENCE
        )

    def _learner_inits(
        self,
        backend: Any = None,
        init_method: Any = None,
        timeout: Any = None,
        world_size: int = -1,
        rank: int = -1,
        *rest: Any,
        **options: Any,
    ) -> None:
        if threading.get_ident() != self._worker:
            self._originals["init_process_group"](backend, init_method, timeout, world_size, rank, *rest, **options)
            return
        if rank not in (-1, self.rank) or world_size not in (-1, self.size):
            raise ValueError(
                f"init_process_group was called with rank={rank}, world_size={world_size}, but this is rank "
                f"{self.rank} of {self.size}: take them from the environment (RANK, WORLD_SIZE), "
                "or pass rank with kit.per_rank"
            )
        wanted = str(backend or "").lower()
        if "nccl" in wanted and self.backend != "nccl":
            raise ValueError(
                "nccl needs a GPU for each rank, and these ranks share or have none: use 'gloo', or no backend at all"
            )
        if "xccl" in wanted:
            raise ValueError("ranks communicate by gloo on Intel's GPUs too: use 'gloo', or no backend at all")
        self.leave()
        placing.leave()
        self._count += 1
        self._init(f"{self._store}.{self._count}")

    def _learner_destroys(self, group: Any = None) -> None:
        self.touched = True
        self._originals["destroy_process_group"](group)


def install(current: Callable[[], World]) -> dict[str, Callable[..., Any]]:
    """Lets the world that `current()` names stand behind c10d's functions; returns those that were there."""
    originals: dict[str, Callable[..., Any]] = {}
    helper = c10d._new_process_group_helper

    @functools.wraps(helper)
    def new_process_group_helper(
        size: int, rank: int, members: list[int], backend: Any, *rest: Any, **options: Any
    ) -> Any:
        if str(backend).lower() not in _SEEN:
            return helper(size, rank, members, backend, *rest, **options)
        world = current()
        world.touched = True
        with world.meeting():
            group, store = helper(size, rank, members, CONFIG, *rest, **options)
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            shown = dist.Backend(world.backend)
            c10d._world.pg_map[group] = (shown, c10d._world.pg_map[group][1])
            c10d._world.pg_backend_config[group] = str(c10d.BackendConfig(shown))
        return group, store

    def replace(name: str, own: Callable[[World], Callable[..., Any]]) -> None:
        originals[name] = original = getattr(c10d, name)

        @functools.wraps(original)
        def replaced(*arguments: Any, **options: Any) -> Any:
            return own(current())(*arguments, **options)

        setattr(c10d, name, replaced)
        setattr(dist, name, replaced)

    setattr(c10d, "_new_process_group_helper", new_process_group_helper)  # noqa: B010
    replace("init_process_group", lambda world: world._learner_inits)
    replace("destroy_process_group", lambda world: world._learner_destroys)
    return originals


def seed_everything(rank: int, accelerator: Accelerator) -> None:
    """Forked processes share their parent's random state: give each its own."""
    import random

    import numpy as np

    seed = int.from_bytes(os.urandom(4), "little") ^ rank
    random.seed(seed)
    np.random.seed(seed)
    accelerator.seed(seed)
