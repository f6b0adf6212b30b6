"""torch's own collectives with the signatures of the references: one can stand where the other stands.

Letters: n the ranks of the group. `group=None` is the world.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist

Group = dist.ProcessGroup | None
AllReduce = Callable[[torch.Tensor, Group], torch.Tensor]
"""Sums x (any shape) over the group into a new tensor: `built_in_all_reduce`, `ring_all_reduce`, ..."""
Broadcast = Callable[[torch.Tensor, int, Group], torch.Tensor]
"""Gives every rank the root's x (any shape) as a new tensor: `built_in_broadcast`, `tree_broadcast`, ..."""


class Handle(Protocol):
    """What is under way. On a GPU `wait` makes the current stream wait, and the host goes on."""

    def wait(self) -> Any: ...


Launch = Callable[[torch.Tensor, Group], Handle]
"""Begins to sum x (contiguous) over the group, in place, and returns at once."""


def built_in_all_reduce(x: torch.Tensor, group: Group = None) -> torch.Tensor:
    """Sum x (any shape) over the group. Returns a new tensor like x."""
    y = x.detach().clone(memory_format=torch.contiguous_format)  # shape of x
    dist.all_reduce(y, group=group)
    return y


def built_in_broadcast(x: torch.Tensor, root: int = 0, group: Group = None) -> torch.Tensor:
    """Give every rank the root's x (any shape). Returns a new tensor like x. `root` counts within the group."""
    y = x.detach().clone(memory_format=torch.contiguous_format)  # shape of x
    dist.broadcast(y, group=group, group_src=root)
    return y


def launch_all_reduce(x: torch.Tensor, group: Group = None) -> Handle:
    """Begin to sum x (contiguous) over the group, in place; it is summed after `wait()` of what comes back."""
    work: Handle = dist.all_reduce(x, group=group, async_op=True)
    return work


def at_once(all_reduce: AllReduce) -> Launch:
    """A launch that returns when the sum is there: nothing overlaps, but any all-reduce will do."""

    def launch(x: torch.Tensor, group: Group) -> Handle:
        x.copy_(all_reduce(x, group))  # shape of x
        return _Done()

    return launch


class _Done:
    def wait(self) -> None:
        """There is nothing to wait for."""
