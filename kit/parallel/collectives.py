"""Collectives from send and receive only, short enough to step through.

Letters throughout: r this rank, n the ranks of the group, C elements or rows. `group=None` is the world; every rank
named here (`root` too) counts within the group. Every rank of the group must call, with tensors of the same dtype
and, unless said otherwise, the same shape. Inputs stay as they are, results are new tensors without gradient history.
What each rank sends, exactly, is in `kit.parallel.traffic`; the naive counterparts, with the same faces, are in
`kit.parallel.naive`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from kit.parallel.chunks import (
    chunk_sizes,
    cut,
    doublings,
    empty_chunks,
    fill_own,
    flat_copy,
    power_of_two_within,
    rows,
)
from kit.parallel.exchange import exchange
from kit.parallel.naive import (
    all_gather_via_root,
    all_reduce_via_root,
    all_to_all_in_turn,
    broadcast_from_root,
    reduce_scatter_via_root,
)

__all__ = [
    "all_gather_via_root",
    "all_reduce_via_root",
    "all_to_all",
    "all_to_all_in_turn",
    "broadcast_from_root",
    "chunk_sizes",
    "exchange",
    "halving_doubling_all_reduce",
    "reduce_scatter_via_root",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_reduce_scatter",
    "tree_all_reduce",
    "tree_broadcast",
]

Group = dist.ProcessGroup | None

# The shapes stand in one column.
# fmt: off


def ring_all_reduce(x: torch.Tensor, group: Group = None) -> torch.Tensor:
    """Sum x (any shape) over the group, chunks going round a ring. Returns a new tensor like x, the same everywhere.

    2(n-1) messages per rank, about 2(n-1)/n of x in bytes: however many ranks there are, less than twice x.
    Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms (2009).
    """
    r, n = dist.get_rank(group), dist.get_world_size(group)
    chunks = cut(x.flatten(), n)               # n x (C/n,)
    right, left = (r + 1) % n, (r - 1) % n
    for s in range(n - 1):                     # reduce-scatter
        out, acc = (r - s) % n, (r - s - 1) % n
        inbox = torch.empty_like(chunks[acc])  # (C/n,)
        exchange(chunks[out], right, inbox, left, group)
        chunks[acc] += inbox                   # (C/n,)
    for s in range(n - 1):                     # all-gather
        out, into = (r + 1 - s) % n, (r - s) % n
        exchange(chunks[out], right, chunks[into], left, group)
    return torch.cat(chunks).view(x.shape)     # shape of x


def ring_reduce_scatter(x: torch.Tensor, group: Group = None) -> torch.Tensor:
    """Sum x (C, ...) over the group and keep one share each. Returns a new tensor (C/n, ...): rows r of `tensor_split`.

    The first half of the ring all-reduce: n-1 messages per rank, about (n-1)/n of x. C need not divide by n. Raises
    ValueError for an x without dimensions.
    """
    r, n = dist.get_rank(group), dist.get_world_size(group)
    chunks = cut(x, n)                         # n x (C/n, ...)
    right, left = (r + 1) % n, (r - 1) % n
    for s in range(n - 1):
        out, acc = (r - s - 1) % n, (r - s - 2) % n
        inbox = torch.empty_like(chunks[acc])  # (C/n, ...)
        exchange(chunks[out], right, inbox, left, group)
        chunks[acc] += inbox                   # (C/n, ...)
    return chunks[r].clone()                   # (C/n, ...)


def ring_all_gather(x: torch.Tensor, group: Group = None, sizes: Sequence[int] | None = None) -> torch.Tensor:
    """Put the ranks' shares x (C_r, ...) end to end. Returns a new tensor (sum of C_i, ...), the same everywhere.

    `sizes` says how many rows each rank holds, where they differ (`chunk_sizes(C, n)` for shares of a reduce-scatter);
    None: all hold as many as this one. n-1 messages per rank. Raises ValueError for sizes that do not fit n or x.
    """
    r, n = dist.get_rank(group), dist.get_world_size(group)
    sizes = [rows(x)] * n if sizes is None else sizes
    chunks = empty_chunks(x, sizes, n)         # n x (C_i, ...)
    fill_own(chunks[r], x)                     # (C_r, ...)
    right, left = (r + 1) % n, (r - 1) % n
    for s in range(n - 1):
        out, into = (r - s) % n, (r - s - 1) % n
        exchange(chunks[out], right, chunks[into], left, group)
    return torch.cat(chunks)                   # (sum of C_i, ...)


def tree_broadcast(x: torch.Tensor, root: int = 0, group: Group = None) -> torch.Tensor:
    """Give every rank the root's x (any shape). Returns a new tensor like x; the others' x says only its shape.

    A binomial tree: each round doubles the ranks that know, so ceil(log2 n) rounds; n-1 messages in all, each the
    whole x. Raises ValueError for a root outside the group.
    """
    r, n = dist.get_rank(group), dist.get_world_size(group)
    if not 0 <= root < n:
        raise ValueError(f"root {root} is not a rank of this group of {n}: ranks go from 0 to {n - 1}")
    seat = (r - root) % n                      # the root sits at 0
    y = flat_copy(x)                           # (C,)
    for step in doublings(n):                  # seats below step know
        if seat < step and seat + step < n:
            dist.send(y, group=group, group_dst=(r + step) % n)
        elif step <= seat < 2 * step:
            dist.recv(y, group=group, group_src=(r - step) % n)
    return y.view(x.shape)                     # shape of x


def tree_all_reduce(x: torch.Tensor, group: Group = None) -> torch.Tensor:
    """Sum x (any shape) up a tree to rank 0, then send it back down. Returns a new tensor like x, the same everywhere.

    2 ceil(log2 n) rounds, each the whole x: few messages, so it suits small tensors.
    """
    r, n = dist.get_rank(group), dist.get_world_size(group)
    y = flat_copy(x)                           # (C,)
    for step in reversed(doublings(n)):        # the ranks from step to 2 step hand in their sum
        if step <= r < 2 * step:
            dist.send(y, group=group, group_dst=r - step)
        elif r < step and r + step < n:
            inbox = torch.empty_like(y)        # (C,)
            dist.recv(inbox, group=group, group_src=r + step)
            y += inbox                         # (C,)
    return tree_broadcast(y, 0, group).view(x.shape)


def halving_doubling_all_reduce(x: torch.Tensor, group: Group = None) -> torch.Tensor:
    """Sum x (any shape) by swapping halves with ever nearer partners. Returns a new tensor like x, the same everywhere.

    For n = p a power of two: 2 log2(n) messages per rank, about 2(n-1)/n of x. Other n fold first: each rank past p
    hands its x to a partner below and gets the sum at the end, 2 more messages of the whole x. Thakur, Rabenseifner
    and Gropp, Optimization of collective communication operations in MPICH (2005).
    """
    r, n = dist.get_rank(group), dist.get_world_size(group)
    p = power_of_two_within(n)
    y = flat_copy(x)                           # (C,)
    if r >= p:                                 # fold: hand in, and wait for the sum
        dist.send(y, group=group, group_dst=r - p)
        dist.recv(y, group=group, group_src=r - p)
        return y.view(x.shape)
    if r + p < n:
        inbox = torch.empty_like(y)            # (C,)
        dist.recv(inbox, group=group, group_src=r + p)
        y += inbox                             # (C,)
    swaps = []
    low, high = 0, len(y)                      # what this rank still sums: y[low:high]
    for distance in reversed(doublings(p)):    # halving: a reduce-scatter
        partner, middle = r ^ distance, (low + high) // 2
        lower, upper = slice(low, middle), slice(middle, high)
        mine, theirs = (lower, upper) if r < partner else (upper, lower)
        inbox = torch.empty_like(y[mine])      # (C/2,), (C/4,), ...
        exchange(y[theirs], partner, inbox, partner, group)
        y[mine] += inbox                       # (C/2,), (C/4,), ...
        low, high = mine.start, mine.stop
        swaps.append((partner, mine, theirs))
    for partner, mine, theirs in reversed(swaps):  # doubling: an all-gather
        exchange(y[mine], partner, y[theirs], partner, group)
    if r + p < n:
        dist.send(y, group=group, group_dst=r + p)
    return y.view(x.shape)                     # shape of x


def all_to_all(
    x: torch.Tensor,
    group: Group = None,
    send_sizes: Sequence[int] | None = None,
    receive_sizes: Sequence[int] | None = None,
) -> torch.Tensor:
    """Send chunk i of x (C, ...) to rank i. Returns a new tensor (sum of receive_sizes, ...): chunks by source rank.

    `send_sizes`: rows for each rank (None: as `tensor_split` cuts); `receive_sizes`: rows from each rank (None: every
    rank cuts as this one does). n-1 messages per rank, in n-1 rounds without a busy spot. Raises ValueError for sizes
    that do not fit n or x.
    """
    r, n = dist.get_rank(group), dist.get_world_size(group)
    send_sizes = chunk_sizes(rows(x), n) if send_sizes is None else send_sizes
    outboxes = cut(x, n, send_sizes)           # n x (send_sizes[i], ...)
    receive_sizes = [send_sizes[r]] * n if receive_sizes is None else receive_sizes
    inboxes = empty_chunks(x, receive_sizes, n)  # n x (receive_sizes[i], ...)
    fill_own(inboxes[r], outboxes[r])
    for s in range(1, n):
        to, source = (r + s) % n, (r - s) % n
        exchange(outboxes[to], to, inboxes[source], source, group)
    return torch.cat(inboxes)                  # (sum of receive_sizes, ...)
