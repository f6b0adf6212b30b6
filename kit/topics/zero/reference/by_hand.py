"""ZeRO by hand: each stage on one screen, in plain functions without hooks, buckets or overlap. To be read first.

What they send and keep is what `stages` sends and keeps, for any module and while backward goes on. Tensors are laid
end to end and cut into one equal shard per rank: torch's collectives want equal shards, so fewer than n zeros stand at
the end. Letters: P elements of what is flattened, padding included; n ranks, r this one; B samples, C channels. state
is what AdamW remembers of a shard, an empty dict before the first step; options are AdamW's (lr, betas, eps,
weight_decay). All ranks of the group call, with equal weights to begin with; gradients become their mean.

Rajbhandari, Rasley, Ruwase and He, ZeRO: memory optimizations toward training trillion parameter models (2020).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import Parameter

from kit.topics.data_parallel.reference.built_in import Group

# torch 2.13 gave these two shorter names, and warns of the old ones.
_all_gather: Callable[..., dist.Work] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter: Callable[..., dist.Work] = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

# The shapes stand in one column.
# fmt: off


@torch.no_grad()
def stage_1_step(params: Sequence[Parameter], state: dict[str, Any], group: Group = None, **options: Any) -> None:
    """Stage 1, after backward: the optimizer is sharded.

    One reduce-scatter and one all-gather, (n-1)/n of P each: together what an all-reduce sends.
    """
    n, r = dist.get_world_size(group), dist.get_rank(group)
    grads = flatten([grad_of(p) for p in params], n)               # (n, P/n)
    grad_shard = mean_shard(grads, group)                          # (P/n,)
    weights = flatten(params, n)                                   # (n, P/n)
    step_shard(weights[r], grad_shard, state, **options)           # (P/n,)
    all_gather(weights, weights[r], group).wait()                  # (n, P/n)
    for p, new in zip(params, unflatten(weights, [p.shape for p in params]), strict=True):
        p.copy_(new)                                               # shape of p


@torch.no_grad()
def stage_2_sum(params: Sequence[Parameter], grad_shards: dict[Parameter, torch.Tensor], group: Group = None) -> None:
    """Stage 2, after every micro-batch's backward: the gradients are sharded too.

    One reduce-scatter for each parameter adds this rank's shard of the mean to `grad_shards`; the full gradient is gone
    before the next one is touched.
    """
    for p in reversed(params):
        grad = flatten([grad_of(p)], dist.get_world_size(group))   # (n, P/n)
        p.grad = None
        shard = mean_shard(grad, group)                            # (P/n,)
        grad_shards[p] = grad_shards[p] + shard if p in grad_shards else shard


@torch.no_grad()
def stage_2_step(
    params: Sequence[Parameter], grad_shards: dict[Parameter, torch.Tensor],
    states: dict[Parameter, dict[str, Any]], group: Group = None, **options: Any,
) -> None:
    """Stage 2, after the last micro-batch: step this rank's shard of each parameter, and gather all shards of it."""
    n, r = dist.get_world_size(group), dist.get_rank(group)
    for p in params:
        weights = flatten([p], n)                                  # (n, P/n)
        step_shard(weights[r], grad_shards.pop(p), states.setdefault(p, {}), **options)  # (P/n,)
        all_gather(weights, weights[r], group).wait()              # (n, P/n)
        p.copy_(unflatten(weights, [p.shape])[0])                  # shape of p


@torch.no_grad()
def stage_3_step(
    shards: Sequence[torch.Tensor], shapes: Sequence[torch.Size], layer: Callable[..., torch.Tensor],
    x: torch.Tensor, loss_of: Callable[[torch.Tensor], torch.Tensor], states: Sequence[dict[str, Any]],
    group: Group = None, **options: Any,
) -> torch.Tensor:
    """Stage 3: forward, backward and step of layers `x = layer(x, w)` in a row, one of them in full at a time.

    shards: of each layer's w (its shape in `shapes`) this rank's (P/n,), stepped in place. x (B, C): this rank's
    samples; loss_of: their loss from the last layer's output. Returns the loss (). Each w is gathered twice, and only
    the layers' inputs are kept, so that each layer is computed twice too.
    """
    n = dist.get_world_size(group)
    inputs = []
    for shard, shape in zip(shards, shapes, strict=True):          # forward
        w = full_parameter(shard, shape, group)                    # (C, C)
        inputs.append(x)
        x = layer(x, w)                                            # (B, C)
        del w                                                      # its memory is free again
    with torch.enable_grad():
        y = x.requires_grad_()                                     # (B, C)
        loss = loss_of(y)                                          # ()
        (dx,) = torch.autograd.grad(loss, y)                       # (B, C)
    for shard, shape, state in reversed(list(zip(shards, shapes, states, strict=True))):  # backward
        w = full_parameter(shard, shape, group).requires_grad_()   # (C, C)
        x = inputs.pop().detach().requires_grad_()                 # (B, C)
        with torch.enable_grad():
            y = layer(x, w)                                        # (B, C)
            dx, dw = torch.autograd.grad(y, (x, w), dx)            # (B, C), (C, C)
        del w, y
        grad_shard = mean_shard(flatten([dw], n), group)           # (P/n,)
        step_shard(shard, grad_shard, state, **options)            # (P/n,)
    return loss.detach()


# ------------------------------------------------------------------------------------------ what they are made of


def mean_shard(grads: torch.Tensor, group: Group = None) -> torch.Tensor:
    """This rank's row of the mean of grads (n, P/n) over the group: a new tensor (P/n,)."""
    shard = torch.empty_like(grads[0])                             # (P/n,)
    reduce_scatter(shard, grads, group).wait()
    return shard / dist.get_world_size(group)                      # (P/n,)


def full_parameter(shard: torch.Tensor, shape: torch.Size, group: Group = None) -> torch.Tensor:
    """The tensor of this shape of which every rank has a shard (P/n,), in memory of its own."""
    full = shard.new_empty(dist.get_world_size(group), len(shard))  # (n, P/n)
    all_gather(full, shard, group).wait()
    return unflatten(full, [shape])[0]                             # shape


def step_shard(w: torch.Tensor, grad: torch.Tensor, state: dict[str, Any], **options: Any) -> None:
    """AdamW on a shard: weights w (P/n,), in place, against their gradient (P/n,)."""
    if not state:
        state.update(step=0, exp_avg=torch.zeros_like(w), exp_avg_sq=torch.zeros_like(w))  # 2 x (P/n,)
    state["step"] += 1
    adamw_(w, grad, state["exp_avg"], state["exp_avg_sq"], state["step"], **options)


def grad_of(p: Parameter) -> torch.Tensor:
    """p.grad, or zeros like p where the loss does not depend on it."""
    return torch.zeros_like(p) if p.grad is None else p.grad       # shape of p


def adamw_(
    w: torch.Tensor, grad: torch.Tensor, exp_avg: torch.Tensor, exp_avg_sq: torch.Tensor, step: int,
    lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.01,
) -> None:
    """One step of the weights w (P,) against their gradient (P,), in place; exp_avg, exp_avg_sq (P,) are its moments.

    step counts from 1. Loshchilov and Hutter, Decoupled weight decay regularization (2019). The order of operations,
    and so the rounding, is that of torch.optim.AdamW.
    """
    w.mul_(1 - lr * weight_decay)                                                # (P,)
    exp_avg.lerp_(grad, 1 - betas[0])                                            # (P,)
    exp_avg_sq.mul_(betas[1]).addcmul_(grad, grad, value=1 - betas[1])           # (P,)
    denominator = (exp_avg_sq.sqrt() / (1 - betas[1] ** step) ** 0.5).add_(eps)  # (P,)
    w.addcdiv_(exp_avg, denominator, value=-lr / (1 - betas[0] ** step))         # (P,)


def flatten(tensors: Sequence[torch.Tensor], n: int) -> torch.Tensor:
    """The elements of tensors (any shapes, one dtype), then zeros: a new (n, P/n), of which row r is rank r's shard."""
    pieces = [x.detach().flatten() for x in tensors]
    count = sum(len(piece) for piece in pieces)
    padding = pieces[0].new_zeros(-count % n)                      # fewer than n
    return torch.cat([*pieces, padding]).view(n, -1)               # (n, P/n)


def unflatten(flat: torch.Tensor, shapes: Iterable[torch.Size]) -> list[torch.Tensor]:
    """Views of flat (n, P/n) with these shapes, without the padding: what is written to a view is written to flat."""
    line = flat.view(-1)                                           # (P,)
    shapes = list(shapes)
    return [line[at].view(shape) for shape, at in zip(shapes, spans(shapes), strict=True)]


def reduce_scatter(shard: torch.Tensor, flat: torch.Tensor, group: Group = None) -> dist.Work:
    """Begin to sum flat (n, P/n) over the group; after `wait()` shard (P/n,) is this rank's row of the sum.

    The shard may be row r of flat itself.
    """
    return _reduce_scatter(shard, flat.view(-1), group=group, async_op=True)


def all_gather(flat: torch.Tensor, shard: torch.Tensor, group: Group = None) -> dist.Work:
    """Begin to gather every rank's shard (P/n,); after `wait()` row r of flat (n, P/n) is that of rank r.

    The shard may be row r of flat itself.
    """
    return _all_gather(flat.view(-1), shard, group=group, async_op=True)


def spans(shapes: Iterable[torch.Size]) -> list[slice]:
    """Where the elements of each shape lie when all lie end to end."""
    sizes = [shape.numel() for shape in shapes]
    return [slice(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]


# fmt: on
