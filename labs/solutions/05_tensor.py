"""Solutions of lab 05, Tensor parallel: one function per exercise."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from kit.topics.tensor import gather_in, scatter_out


def sum_out(x, group=None):  # adds up; autograd sees the copy alone, so the gradient goes through
    y = x.clone()
    dist.all_reduce(y.detach(), group=group)
    return y


def copy_in(x, group=None):  # hands x through; its gradients are added up on the way back
    y = x.view_as(x)
    if y.requires_grad:
        y.register_hook(lambda dy: sum_out(dy, group))
    return y


def column_linear(x, w, b, dy, group=None):
    """A linear layer cut by outputs, forward and backward.

    x (B, C): the same on every rank. w (F/n, C), b (F/n,): this rank's shard. dy (B, F/n): the gradient of y. Returns y
    (B, F/n), dx (B, C), dw (F/n, C), db (F/n,). Forward needs nobody: each rank has all of x. But every rank used x, so
    its gradient is a sum over the ranks. Those of the shards are each rank's own business.
    """
    y = F.linear(x, w, b)  # (B, F/n)
    dx = dy @ w  # (B, C) from this rank's outputs
    dist.all_reduce(dx, group=group)
    dw = dy.T @ x  # (F/n, C)
    db = dy.sum(0)  # (F/n,)
    return y, dx, dw, db


def row_linear(x, w, b, dy, group=None):
    """A linear layer cut by inputs, forward and backward.

    x (B, F/n), w (C, F/n): this rank's shards. b (C,), dy (B, C): the same on every rank; dy is the gradient of y.
    Returns y (B, C), dx (B, F/n), dw (C, F/n), db (C,). Each rank has one term of the sum, so forward adds them up, and
    the bias once. Backward needs nobody: every rank has all of dy.
    """
    y = F.linear(x, w)  # (B, C) one term of n
    dist.all_reduce(y, group=group)
    y = y + b  # (B, C)
    dx = dy @ w  # (B, F/n)
    dw = dy.T @ x  # (C, F/n)
    db = dy.sum(0)  # (C,)
    return y, dx, dw, db


def parallel_mlp(x, up, up_bias, down, down_bias, group=None):
    """Column linear, GELU, row linear: autograd does the backward.

    x (B, C), down_bias (C,): the same on every rank. up (F/n, C), up_bias (F/n,), down (C, F/n): this rank's shards.
    Returns y (B, C). GELU takes each feature by itself, so between the two layers nothing has to be put together.
    """
    x = copy_in(x, group)  # (B, C)
    h = F.gelu(F.linear(x, up, up_bias))  # (B, F/n)
    y = sum_out(F.linear(h, down), group)  # (B, C)
    return y + down_bias  # (B, C)


def split_attention(x, qkv, out, heads, group=None):
    """Causal self-attention of which each rank computes heads/n heads, those of rank 0 first.

    x (B, T, C), qkv (3C, C), out (C, C): whole, the same on every rank; qkv has the rows of q, then k, then v, in each
    head after head. Returns y (B, T, C). A rank takes its heads' rows of each third, and the columns of out that read
    them.
    """
    n, r = dist.get_world_size(group), dist.get_rank(group)
    x = copy_in(x, group)  # (B, T, C)
    q, k, v = (F.linear(x, third.chunk(n)[r]) for third in qkv.chunk(3))  # 3 x (B, T, C/n)
    q, k, v = (y.unflatten(-1, (heads // n, -1)).transpose(1, 2) for y in (q, k, v))  # 3 x (B, H/n, T, D)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, H/n, T, D)
    y = y.transpose(1, 2).flatten(2)  # (B, T, C/n)
    return sum_out(F.linear(y, out.chunk(n, 1)[r]), group)  # (B, T, C)


def dropout(x, p, seed, cut, group=None):
    """Dropout that agrees where ranks hold the same and differs where each holds its own.

    x: any shape. cut False: the same x on every rank, so the same elements go. cut True: a part of its own on each
    rank, so others go. Equal seeds drop equally again. A generator of its own leaves torch's where it was.
    """
    mine = seed + 1000 * (1 + dist.get_rank(group)) if cut else seed
    generator = torch.Generator(x.device).manual_seed(mine)
    kept = torch.rand(x.shape, generator=generator, device=x.device) >= p  # shape of x
    return x * kept / (1 - p)  # shape of x


def sequence_mlp(x, gain, up, down, group=None):
    """Norm on this rank's part of the sequence, MLP on this rank's features.

    x (T/n, C): this rank's positions. gain (C,): of the norm, the same on every rank. up (F/n, C), down (C, F/n):
    shards. Returns y (T/n, C), for this rank's positions. Each rank used the gain on other positions, so its gradient
    is a sum over the ranks, and that is what copy_in does on the way back.
    """
    gain = copy_in(gain, group)  # (C,)
    x = F.layer_norm(x, gain.shape, gain)  # (T/n, C)
    x = gather_in(x, 0, group)  # (T, C)
    h = F.gelu(F.linear(x, up))  # (T, F/n)
    return scatter_out(F.linear(h, down), 0, group)  # (T/n, C)
