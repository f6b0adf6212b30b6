"""What NCCL does differently, without a GPU: ranks on CPU tensors whose groups have its manners.

`mannered` makes every cluster that is started within it one of such ranks. Nothing of the product knows of it: the host
agent is started by `boot.py` here, which puts `group.connected_group` in the place of the real one before it forks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BOOT = str(Path(__file__).with_name("boot.py"))


@contextmanager
def mannered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kit.clusters.launcher.BOOT", BOOT)
        yield


def take_over() -> None:
    """In the agent, before it forks: all ranks have nccl, and CPU tensors that play its device's part."""
    from torch.cuda import nccl
    from torch.distributed import distributed_c10d as c10d

    from kit.clusters import devices
    from kit.probe import accelerator, own, run, timing, world
    from kit.topics.gpt import standing
    from tests.manners import cuda, group, streams

    def plan(request: Any, found: Any, build: Any) -> devices.Plan:
        return devices.Plan("nccl", tuple(f"cuda:{rank}" for rank in range(request.ranks)))

    devices.plan = plan
    accelerator.of = cuda.StandIn
    world.connected_group = group.connected_group
    timing.FEWEST, timing.MOST = 2, 5  # a call takes this device milliseconds: fewer make a batch
    own._INSTALLED += (str(Path(BOOT).parent) + os.sep,)  # nobody's own code, like a library's
    nccl.version = lambda: (2, 27, 5)  # c10d asks for it where it logs what an operation raised
    c10d.default_pg_nccl_timeout = c10d.default_pg_timeout
    body = run.Run.body

    def seen(self: run.Run) -> None:
        with streams.Touches():
            body(self)

    run.Run.body = seen  # type: ignore[method-assign]
    in_a_sentence = standing._in_a_sentence

    def seen_too(work: Callable[[], Any]) -> Any:
        with streams.Touches():
            return in_a_sentence(work)

    standing._in_a_sentence = seen_too  # a training that stands on a rank goes on outside of runs
