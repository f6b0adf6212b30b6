"""Data parallel training on one screen.

    broadcast_state(model)
    for x, y in batches_of_this_rank:
        loss_of(model(x), y).backward()
        average_gradients(model)
        optimizer.step()
        optimizer.zero_grad()

All ranks begin with the same weights and take the same steps, so their weights stay the same. The mean over n ranks of
the gradient of a mean over B samples is the gradient of the mean over all n B samples: what one process would do.
Nothing is computed while gradients travel; `ddp` does both at once.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from kit.topics.data_parallel.reference.built_in import (
    AllReduce,
    Broadcast,
    Group,
    built_in_all_reduce,
    built_in_broadcast,
)


@torch.no_grad()
def broadcast_state(module: nn.Module, group: Group = None, broadcast: Broadcast = built_in_broadcast) -> None:
    """Give every rank the parameters (frozen ones too) and buffers of the group's rank 0, in place."""
    for x in [*module.parameters(), *module.buffers()]:
        x.copy_(broadcast(x, 0, group))  # shape of x


def average_gradients(module: nn.Module, group: Group = None, all_reduce: AllReduce = built_in_all_reduce) -> None:
    """Replace every gradient by its mean over the group: call it after backward. K all-reduces, one after the other.

    A rank on which a parameter has no gradient adds zeros, because the others wait for it.
    """
    n = dist.get_world_size(group)
    for p in module.parameters():
        if p.requires_grad:
            gradient = torch.zeros_like(p) if p.grad is None else p.grad  # shape of p
            p.grad = all_reduce(gradient / n, group)  # shape of p
