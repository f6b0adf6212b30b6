"""Chunks that go round a ring: each rank sends to its right neighbour and receives from its left, all at once.

Reduce-scatter. x is cut into n chunks. In step s rank r sends chunk r-s-1 to the right and adds what comes from the
left to chunk r-s-2. So chunk c sets out from rank c+1, collects one summand at each stop, and after n-1 steps is
complete at rank c.

All-gather. In step s rank r sends chunk r-s to the right and receives chunk r-s-1. So chunk c sets out from rank c and
after n-1 steps has been everywhere.

An all-reduce is both: 2(n-1) steps, each of one chunk, C/n elements. A rank sends 2(n-1)/n of x, less than twice x
however many ranks there are. Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms (2009).

All ranks and chunks are counted modulo n.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from kit.topics.collectives.reference.primitives import Group, buffers_around, chunk_sizes, cut, exchange, rows

# The shapes stand in one column.
# fmt: off


def ring_reduce_scatter(x: torch.Tensor, group: Group = None) -> torch.Tensor:
    """Sum x (C, ...) over the group and keep one chunk each. Returns a new tensor (C/n, ...): rows r of `tensor_split`.

    n-1 messages per rank, about (n-1)/n of x. C need not divide by n. Raises ValueError for an x without dimensions.
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
    """Put the ranks' chunks x (C_r, ...) end to end. Returns a new tensor (sum of C_i, ...), the same everywhere.

    `sizes` says how many rows each rank holds, where they differ (`chunk_sizes(C, n)` after a reduce-scatter);
    None: all hold as many as this one. n-1 messages per rank. Raises ValueError for sizes that do not fit n or x.
    """
    r, n = dist.get_rank(group), dist.get_world_size(group)
    sizes = [rows(x)] * n if sizes is None else sizes
    chunks = buffers_around(x, r, sizes, n)    # n x (C_i, ...)
    right, left = (r + 1) % n, (r - 1) % n
    for s in range(n - 1):
        out, into = (r - s) % n, (r - s - 1) % n
        exchange(chunks[out], right, chunks[into], left, group)
    return torch.cat(chunks)                   # (sum of C_i, ...)


def ring_all_reduce(x: torch.Tensor, group: Group = None) -> torch.Tensor:
    """Sum x (any shape) over the group, chunks going round a ring. Returns a new tensor like x, the same everywhere.

    2(n-1) messages per rank, about 2(n-1)/n of x. The reduce-scatter here leaves rank r with chunk r+1 complete, so
    that the all-gather goes on from there.
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


def all_to_all(
    x: torch.Tensor,
    group: Group = None,
    send_sizes: Sequence[int] | None = None,
    receive_sizes: Sequence[int] | None = None,
) -> torch.Tensor:
    """Send chunk i of x (C, ...) to rank i, in round s s places to the right.

    Returns a new tensor (sum of receive_sizes, ...): chunks by source rank. `send_sizes`: rows for each rank (None: as
    `tensor_split` cuts); `receive_sizes`: rows from each rank (None: every rank cuts as this one does). n-1 messages
    per rank, in n-1 rounds without a busy spot. Raises ValueError for sizes that do not fit n or x.
    """
    r, n = dist.get_rank(group), dist.get_world_size(group)
    send_sizes = chunk_sizes(rows(x), n) if send_sizes is None else send_sizes
    outboxes = cut(x, n, send_sizes)           # n x (send_sizes[i], ...)
    receive_sizes = [send_sizes[r]] * n if receive_sizes is None else receive_sizes
    inboxes = buffers_around(outboxes[r], r, receive_sizes, n)  # n x (receive_sizes[i], ...)
    for s in range(1, n):
        to, source = (r + s) % n, (r - s) % n
        exchange(outboxes[to], to, inboxes[source], source, group)
    return torch.cat(inboxes)                  # (sum of receive_sizes, ...)
