"""Tensor parallel by hand: all of it on one screen, in plain functions. To be read first.

A layer enters a region in which each rank computes with a shard of the weights, and leaves it again. Both are
communications, and each of the four has another one as its derivative:

    forward                       backward
    copy_in      nothing          all-reduce
    sum_out      all-reduce       nothing
    gather_in    all-gather       reduce-scatter     where activations are cut outside the region too, by position
    scatter_out  reduce-scatter   all-gather

Letters: B samples, T positions, C channels, F features inside the MLP, n ranks. Weights are torch's, (out, in). A
column linear is cut by its outputs, which are columns in y = x A; a row linear by its inputs.

Shoeybi and others, Megatron-LM (2019), section 3: f and g are copy_in and sum_out. Korthikanti and others, Reducing
activation recomputation in large transformer models (2022), section 4.2: the other two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from kit.topics.data_parallel.reference.built_in import Group, built_in_all_reduce

Tensor = torch.Tensor

# torch 2.13 gave these two shorter names, and warns of the old ones.
_all_gather: Callable[..., Any] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter: Callable[..., Any] = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

# The shapes stand in one column.
# fmt: off


def column_linear(x: Tensor, w: Tensor, b: Tensor | None = None, group: Group = None) -> Tensor:
    """x (..., C), the same on every rank, w (F/n, C), b (F/n,) -> this rank's outputs (..., F/n)."""
    return F.linear(copy_in(x, group), w, b)                       # (..., F/n)


def row_linear(x: Tensor, w: Tensor, b: Tensor | None = None, group: Group = None) -> Tensor:
    """x (..., F/n), w (C, F/n): this rank's inputs. b (C,) whole -> (..., C), the same on every rank.

    The bias is added after the sum: before it, n ranks would add it n times.
    """
    y = sum_out(F.linear(x, w), group)                             # (..., C)
    return y if b is None else y + b                               # (..., C)


def mlp(x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, group: Group = None) -> Tensor:
    """Column, then row: between them each feature is on one rank only. One all-reduce forward, one backward.

    x (..., C), up (F/n, C), up_bias (F/n,), down (C, F/n), down_bias (C,) -> (..., C).
    """
    h = F.gelu(column_linear(x, up, up_bias, group))               # (..., F/n)
    return row_linear(h, down, down_bias, group)                   # (..., C)


def sequence_mlp(
    x: Tensor, gain: Tensor, shift: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor,
    group: Group = None,
) -> Tensor:
    """Norm on this rank's positions, MLP on this rank's features: x (B, T/n, C) -> (B, T/n, C).

    gain, shift and down_bias (C,) are the same on every rank, but each has seen other positions: copy_in sums their
    gradients.
    """
    gain, shift, down_bias = (copy_in(p, group) for p in (gain, shift, down_bias))  # 3 x (C,)
    x = F.layer_norm(x, gain.shape, gain, shift)                   # (B, T/n, C)
    x = gather_in(x, 1, group)                                     # (B, T, C)
    h = F.gelu(F.linear(x, up, up_bias))                           # (B, T, F/n)
    return scatter_out(F.linear(h, down), 1, group) + down_bias    # (B, T/n, C)


def attention(x: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, heads: int, group: Group = None) -> Tensor:
    """Causal attention of this rank's `heads` heads; heads never look at each other. x (B, T, C) -> (B, T, C).

    q, k, v (C/n, C): the rows of these heads. out (C, C/n): the columns that read them.
    """
    x = copy_in(x, group)                                          # (B, T, C)
    q, k, v = (
        F.linear(x, w).unflatten(-1, (heads, -1)).transpose(1, 2)
        for w in (q, k, v)
    )                                                              # 3 x (B, H/n, T, D)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)    # (B, H/n, T, D)
    y = y.transpose(1, 2).flatten(2)                               # (B, T, C/n)
    return row_linear(y, out, None, group)                         # (B, T, C)


# ----------------------------------------------------------------------------------------- what they are made of


def copy_in(x: Tensor, group: Group = None) -> Tensor:
    """x, the same on every rank. Backward: every rank used it, so their gradients are summed."""
    return _call(_CopyIn, x, group)                                # shape of x


def sum_out(x: Tensor, group: Group = None) -> Tensor:
    """The sum of every rank's x. Backward: the sum has one gradient, and each term has the same."""
    return _call(_SumOut, x, group)                                # shape of x


def gather_in(x: Tensor, dim: int, group: Group = None) -> Tensor:
    """Every rank's x, one after the other along dim. Backward: gradients are summed, and each rank gets its part's."""
    return _call(_GatherIn, x, dim, group)                         # n times as long in dim


def scatter_out(x: Tensor, dim: int, group: Group = None) -> Tensor:
    """This rank's part, along dim, of the sum of every rank's x. Backward: the parts' gradients are gathered."""
    return _call(_ScatterOut, x, dim, group)                       # an n-th as long in dim


def shard(x: Tensor, dim: int, group: Group = None) -> Tensor:
    """A copy of this rank's n-th of x along dim. Raises ValueError where n ranks cannot share it evenly."""
    n, r = dist.get_world_size(group), dist.get_rank(group)
    check_divides(x.shape[dim], n, f"dimension {dim} of a tensor of shape {tuple(x.shape)}")
    return x.detach().chunk(n, dim)[r].clone()                     # an n-th as long in dim


def all_gather(x: Tensor, dim: int, group: Group = None) -> Tensor:
    """Every rank's x along dim, in a new tensor: rank 0's first."""
    parts = x.new_empty(dist.get_world_size(group), *x.shape)      # (n, shape of x)
    _all_gather(parts.view(-1), x.contiguous().view(-1), group=group)
    return torch.cat(list(parts), dim)                             # n times as long in dim


def reduce_scatter(x: Tensor, dim: int, group: Group = None) -> Tensor:
    """This rank's part along dim of the sum of every rank's x, in a new tensor. ValueError where n does not divide."""
    n = dist.get_world_size(group)
    check_divides(x.shape[dim], n, f"dimension {dim} of a tensor of shape {tuple(x.shape)}")
    parts = torch.stack(x.chunk(n, dim))                           # (n, shape of a part)
    mine = torch.empty_like(parts[0])                              # an n-th as long in dim
    _reduce_scatter(mine.view(-1), parts.view(-1), group=group)
    return mine


def check_divides(size: int, n: int, what: str) -> None:
    """Raises ValueError, with sizes that would do."""
    if size % n:
        fits = f"{size // n * n} or {-(-size // n) * n}" if size > n else f"{n}"
        raise ValueError(f"{what}: {n} ranks cannot share {size} evenly; make it a multiple of {n}, {fits} for example")


class _CopyIn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return x.view_as(x)                                        # shape of x

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        return built_in_all_reduce(dy, ctx.group), None            # shape of x


class _SumOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        return built_in_all_reduce(x, group)                       # shape of x

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        return dy, None                                            # shape of x


class _GatherIn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, group: Group) -> Tensor:
        ctx.dim, ctx.group = dim, group
        return all_gather(x, dim, group)                           # n times as long

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        return reduce_scatter(dy, ctx.dim, ctx.group), None, None  # shape of x


class _ScatterOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, group: Group) -> Tensor:
        ctx.dim, ctx.group = dim, group
        return reduce_scatter(x, dim, group)                       # an n-th as long

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        return all_gather(dy, ctx.dim, ctx.group), None, None      # shape of x


def _call(function: type[torch.autograd.Function], *args: Any) -> Tensor:
    y: Tensor = function.apply(*args)
    return y


# fmt: on
