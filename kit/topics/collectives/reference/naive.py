"""The obvious collectives, with the signatures of the others: through one rank, or one message at a time.

Right, easy to read, and the reason for the others. Through rank 0 an all-reduce is 2(n-1) messages of the whole x, all
of them over the root's link, one after the other; taken in turn, all but two ranks wait.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from kit.topics.collectives.reference.primitives import Group, buffers_around, chunk_sizes, cut, flat_copy, rows

# The shapes stand in one column.
# fmt: off


def broadcast_from_root(x: torch.Tensor, root: int = 0, group: Group = None) -> torch.Tensor:
    """Give every rank the root's x (any shape), one rank after another. Returns a new tensor like x.

    `root` is a rank of the group. Raises ValueError for a root outside it.
    """
    r, n = dist.get_rank(group), dist.get_world_size(group)
    if not 0 <= root < n:
        raise ValueError(f"root {root} is not a rank of this group of {n}: ranks go from 0 to {n - 1}")
    y = flat_copy(x)                           # (C,)
    if r != root:
        dist.recv(y, group=group, group_src=root)
        return y.view(x.shape)
    for to in range(n):
        if to != root:
            dist.send(y, group=group, group_dst=to)
    return y.view(x.shape)                     # shape of x


def all_reduce_via_root(x: torch.Tensor, group: Group = None) -> torch.Tensor:
    """Sum x (any shape) on rank 0, which sends the sum back to everybody. Returns a new tensor like x."""
    r, n = dist.get_rank(group), dist.get_world_size(group)
    y = flat_copy(x)                           # (C,)
    if r != 0:
        dist.send(y, group=group, group_dst=0)
    else:
        for source in range(1, n):
            inbox = torch.empty_like(y)        # (C,)
            dist.recv(inbox, group=group, group_src=source)
            y += inbox                         # (C,)
    return broadcast_from_root(y, 0, group).view(x.shape)


def all_gather_via_root(x: torch.Tensor, group: Group = None, sizes: Sequence[int] | None = None) -> torch.Tensor:
    """Collect the ranks' chunks x (C_r, ...) on rank 0, which sends the whole to everybody. Returns (sum of C_i, ...).

    `sizes`: rows of each rank, where they differ. Raises ValueError for sizes that do not fit n or x.
    """
    r, n = dist.get_rank(group), dist.get_world_size(group)
    sizes = [rows(x)] * n if sizes is None else sizes
    chunks = buffers_around(x, r, sizes, n)    # n x (C_i, ...)
    if r != 0:
        dist.send(chunks[r], group=group, group_dst=0)
    else:
        for source in range(1, n):
            dist.recv(chunks[source], group=group, group_src=source)
    return broadcast_from_root(torch.cat(chunks), 0, group)


def reduce_scatter_via_root(x: torch.Tensor, group: Group = None) -> torch.Tensor:
    """Sum x (C, ...) on rank 0, which hands each rank its rows of `tensor_split`. Returns a new tensor (C/n, ...)."""
    r, n = dist.get_rank(group), dist.get_world_size(group)
    chunks = cut(x, n)                         # n x (C/n, ...)
    if r != 0:
        dist.send(flat_copy(x), group=group, group_dst=0)
        dist.recv(chunks[r], group=group, group_src=0)
        return chunks[r].clone()               # (C/n, ...)
    y = flat_copy(x)                           # (C,), all elements of x
    for source in range(1, n):
        inbox = torch.empty_like(y)            # (C,)
        dist.recv(inbox, group=group, group_src=source)
        y += inbox                             # (C,)
    chunks = cut(y.view(x.shape), n)           # n x (C/n, ...)
    for to in range(1, n):
        dist.send(chunks[to], group=group, group_dst=to)
    return chunks[0].clone()                   # (C/n, ...)


def all_to_all_in_turn(
    x: torch.Tensor,
    group: Group = None,
    send_sizes: Sequence[int] | None = None,
    receive_sizes: Sequence[int] | None = None,
) -> torch.Tensor:
    """Send chunk i of x (C, ...) to rank i, one message at a time. Returns a new tensor (sum of receive_sizes, ...).

    Sizes as in `all_to_all`. Raises ValueError for sizes that do not fit n or x.
    """
    r, n = dist.get_rank(group), dist.get_world_size(group)
    send_sizes = chunk_sizes(rows(x), n) if send_sizes is None else send_sizes
    outboxes = cut(x, n, send_sizes)           # n x (send_sizes[i], ...)
    receive_sizes = [send_sizes[r]] * n if receive_sizes is None else receive_sizes
    inboxes = buffers_around(outboxes[r], r, receive_sizes, n)  # n x (receive_sizes[i], ...)
    for source in range(n):
        for to in range(n):
            if r == source != to:
                dist.send(outboxes[to], group=group, group_dst=to)
            elif r == to != source:
                dist.recv(inboxes[source], group=group, group_src=source)
    return torch.cat(inboxes)                  # (sum of receive_sizes, ...)
