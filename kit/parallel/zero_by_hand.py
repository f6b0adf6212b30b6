"""ZeRO by hand: the three stages as plain functions to be stepped, without hooks, buckets or overlap.

What they send and keep is what `kit.parallel.zero` and `kit.parallel.zero3` send and keep, for any module and while
backward goes on. Letters: P elements of what is flattened, and its padding; n ranks, r this one; B samples, C channels.
memory is what AdamW remembers of a share: an empty dict before the first step. options are AdamW's (lr, betas, eps,
weight_decay). All ranks of the group call, with equal weights to begin with; gradients become their mean.

Rajbhandari, Rasley, Ruwase and He, ZeRO: memory optimizations toward training trillion parameter models (2020).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import Parameter

from kit.parallel.adamw import adamw_
from kit.parallel.flat import Group, all_gather, flatten, reduce_scatter, unflatten

# The shapes stand in one column.
# fmt: off


@torch.no_grad()
def stage_1_step(params: Sequence[Parameter], memory: dict[str, Any], group: Group = None, **options: Any) -> None:
    """After backward: sum the gradients, step one share of the weights, gather all shares. Shards the optimizer.

    One reduce-scatter and one all-gather, (n-1)/n of P each: together what an all-reduce sends.
    """
    n, r = dist.get_world_size(group), dist.get_rank(group)
    gradients = flatten([gradient_of(p) for p in params], n)       # (n, P/n)
    mine = mean_share(gradients, group)                            # (P/n,)
    weights = flatten(params, n)                                   # (n, P/n)
    step_share(weights[r], mine, memory, **options)                # (P/n,)
    all_gather(weights, weights[r], group).wait()                  # (n, P/n)
    for p, new in zip(params, unflatten(weights, [p.shape for p in params]), strict=True):
        p.copy_(new)                                               # shape of p


@torch.no_grad()
def stage_2_sum(params: Sequence[Parameter], kept: dict[Parameter, torch.Tensor], group: Group = None) -> None:
    """After every micro-batch's backward: replace each gradient by this rank's share of the mean, added up in `kept`.

    One reduce-scatter for each parameter. Shards the gradients: the whole ones are gone before the next is touched.
    """
    n = dist.get_world_size(group)
    for p in reversed(params):
        gradient = flatten([gradient_of(p)], n)                    # (n, P/n)
        p.grad = None
        mine = mean_share(gradient, group)                         # (P/n,)
        kept[p] = kept[p] + mine if p in kept else mine            # (P/n,)


@torch.no_grad()
def stage_2_step(
    params: Sequence[Parameter], kept: dict[Parameter, torch.Tensor], memory: dict[Parameter, dict[str, Any]],
    group: Group = None, **options: Any,
) -> None:
    """After the last micro-batch: step this rank's share of each parameter, and gather the others' shares."""
    n, r = dist.get_world_size(group), dist.get_rank(group)
    for p in params:
        weights = flatten([p], n)                                  # (n, P/n)
        step_share(weights[r], kept.pop(p), memory.setdefault(p, {}), **options)  # (P/n,)
        all_gather(weights, weights[r], group).wait()              # (n, P/n)
        p.copy_(unflatten(weights, [p.shape])[0])                  # shape of p


@torch.no_grad()
def stage_3_step(
    shares: Sequence[torch.Tensor], shapes: Sequence[torch.Size], layer: Callable[..., torch.Tensor],
    x: torch.Tensor, loss_of: Callable[[torch.Tensor], torch.Tensor], memories: Sequence[dict[str, Any]],
    group: Group = None, **options: Any,
) -> torch.Tensor:
    """Forward, backward and step of layers `x = layer(x, w)` in a row, of whose weights no rank holds more than one.

    shares: of each layer's w (its shape in `shapes`) the part (P/n,) of this rank, stepped in place. x (B, C): this
    rank's samples; loss_of: their loss from the last layer's output. Returns the loss (). Each w is gathered twice,
    and only the layers' inputs are kept, so that each layer is computed twice too.
    """
    n = dist.get_world_size(group)
    inputs = []
    for share, shape in zip(shares, shapes, strict=True):          # forward
        w = borrow(share, shape, group)                            # (C, C)
        inputs.append(x)
        x = layer(x, w)                                            # (B, C)
        del w                                                      # its memory is free again
    with torch.enable_grad():
        y = x.requires_grad_()                                     # (B, C)
        loss = loss_of(y)                                          # ()
        (dx,) = torch.autograd.grad(loss, y)                       # (B, C)
    for share, shape, memory in reversed(list(zip(shares, shapes, memories, strict=True))):  # backward
        w = borrow(share, shape, group).requires_grad_()           # (C, C)
        x = inputs.pop().detach().requires_grad_()                 # (B, C)
        with torch.enable_grad():
            y = layer(x, w)                                        # (B, C)
            dx, dw = torch.autograd.grad(y, (x, w), dx)            # (B, C), (C, C)
        del w, y
        mine = mean_share(flatten([dw], n), group)                 # (P/n,)
        step_share(share, mine, memory, **options)                 # (P/n,)
    return loss.detach()


def mean_share(gradients: torch.Tensor, group: Group = None) -> torch.Tensor:
    """This rank's row of the mean of gradients (n, P/n) over the group: a new tensor (P/n,)."""
    mine = torch.empty_like(gradients[0])                          # (P/n,)
    reduce_scatter(mine, gradients, group).wait()
    return mine / dist.get_world_size(group)                       # (P/n,)


def borrow(share: torch.Tensor, shape: torch.Size, group: Group = None) -> torch.Tensor:
    """The whole tensor of this shape from every rank's share (P/n,), in memory that goes when it is let go."""
    whole = share.new_empty(dist.get_world_size(group), len(share))  # (n, P/n)
    all_gather(whole, share, group).wait()
    return unflatten(whole, [shape])[0]                            # shape


def step_share(w: torch.Tensor, g: torch.Tensor, memory: dict[str, Any], **options: Any) -> None:
    """AdamW on a share: weights w (P/n,), in place, against their gradient g (P/n,); memory holds two moments of it."""
    if not memory:
        memory.update(step=0, m=torch.zeros_like(w), v=torch.zeros_like(w))  # 2 x (P/n,)
    memory["step"] += 1
    adamw_(w, g, memory["m"], memory["v"], memory["step"], **options)


def gradient_of(p: Parameter) -> torch.Tensor:
    """p.grad, or zeros like p where the loss does not depend on it."""
    return torch.zeros_like(p) if p.grad is None else p.grad       # shape of p


# fmt: on
