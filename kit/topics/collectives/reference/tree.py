"""Distances that double: n ranks are reached in ceil(log2 n) rounds, where a ring takes n-1.

Tree. After the round of distance d, 2d ranks know what rank 0 knew, or have handed their sum to it: few messages, each
the whole x, so it suits small tensors.

Halving and doubling. Partners at distance d swap halves of what they still sum, then d and the halves shrink by two:
C/2 + C/4 + ... = (n-1)/n C elements for a reduce-scatter, and the same way back for an all-gather. A ring's bytes in a
tree's number of rounds. Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH
(2005).
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from kit.topics.collectives.reference.primitives import Group, doublings, exchange, flat_copy

# The shapes stand in one column.
# fmt: off


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

    2 ceil(log2 n) rounds; 2(n-1) messages in all, each the whole x.
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
    hands its x to a partner below and gets the sum at the end, 2 more messages of the whole x.
    """
    r, n = dist.get_rank(group), dist.get_world_size(group)
    p = doublings(n + 1)[-1]                   # the largest power of two up to n
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
