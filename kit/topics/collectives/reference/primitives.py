"""What the collectives are made of: a tensor cut into chunks, and a send and a receive at the same time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

Group = dist.ProcessGroup | None


def exchange(outbox: torch.Tensor, to: int, inbox: torch.Tensor, source: int, group: Group = None) -> None:
    """Send outbox (any shape) to rank `to` while rank `source` fills inbox (any shape); return when both are done.

    `to` and `source` are ranks of `group` (None: the world). Both tensors are contiguous, on the group's device, and
    do not overlap. The two messages are posted together before either is waited for, so a ring in which everybody
    sends first does not lock up (with nccl too, which needs them posted as one batch). An empty tensor is a message
    of 0 bytes like any other: the number of messages never depends on sizes. Only a rank that exchanges with itself
    sends nothing; it copies.

    Raises ValueError when a rank would send to itself but receive from another, or when a tensor is not contiguous.
    """
    me = dist.get_rank(group)
    if to == me and source == me:
        inbox.copy_(outbox)
        return
    if me in (to, source):
        raise ValueError(f"rank {me} exchanges with itself on one side only (to {to}, from {source}): nothing matches")
    if not (outbox.is_contiguous() and inbox.is_contiguous()):
        raise ValueError("exchange needs contiguous tensors: pass x.contiguous(), or a chunk along the first dimension")
    receiving = dist.P2POp(dist.irecv, inbox, group=group, group_peer=source)
    sending = dist.P2POp(dist.isend, outbox, group=group, group_peer=to)
    for work in dist.batch_isend_irecv([receiving, sending]):
        work.wait()


def chunk_sizes(count: int, n: int) -> list[int]:
    """Rows in each of n chunks of `count` rows, as `torch.tensor_split` cuts: the first count % n have one row more.

    Returns n sizes that add up to count; some are 0 when count < n. Raises ValueError for n < 1 or count < 0.
    """
    if n < 1:
        raise ValueError(f"cannot cut into {n} chunks: is this rank a member of the group it was given?")
    if count < 0:
        raise ValueError(f"cannot cut {count} rows: a count is 0 or more")
    return [count // n + (i < count % n) for i in range(n)]


def doublings(n: int) -> list[int]:
    """1, 2, 4, ... below n: the distances of a tree over n ranks, ceil(log2 n) of them. Raises ValueError for n < 1."""
    if n < 1:
        raise ValueError(f"no tree over {n} ranks: is this rank a member of the group it was given?")
    return [2**k for k in range((n - 1).bit_length())]


def rows(x: torch.Tensor) -> int:
    """C of x (C, ...). Raises ValueError for an x without dimensions, which cannot be cut."""
    if x.dim() == 0:
        raise ValueError("a tensor without dimensions has no rows to cut or gather: pass x.reshape(1)")
    return len(x)


def flat_copy(x: torch.Tensor) -> torch.Tensor:
    """The elements of x (any shape), in order, in new memory without gradient history: (C,)."""
    return x.detach().clone(memory_format=torch.contiguous_format).view(-1)  # (C,)


def cut(x: torch.Tensor, n: int, sizes: Sequence[int] | None = None) -> list[torch.Tensor]:
    """A copy of x (C, ...), cut along its first dimension: n chunks (C/n, ...), side by side in new memory.

    Writing to a chunk leaves x as it was. `sizes`: rows of each chunk, where they are not those of `chunk_sizes`.
    Raises ValueError for n < 1, an x without dimensions, or sizes that are not n numbers that add up to C.
    """
    sizes = chunk_sizes(rows(x), n) if sizes is None else _checked(sizes, n)
    if sum(sizes) != len(x):
        raise ValueError(f"sizes {list(sizes)} add up to {sum(sizes)}, but the tensor has {len(x)} rows")
    return list(flat_copy(x).view(x.shape).split(list(sizes)))  # n x (C/n, ...)


def buffers_around(own: torch.Tensor, r: int, sizes: Sequence[int], n: int) -> list[torch.Tensor]:
    """A new tensor (sizes[i], ...) for the rows of each of n ranks: this rank's filled with own (C_r, ...), others not.

    Raises ValueError unless there is one size, 0 or more, for each of the n ranks, and own has sizes[r] rows.
    """
    if len(own) != _checked(sizes, n)[r]:
        raise ValueError(f"this rank's size is {sizes[r]} rows in the sizes given, but it holds {len(own)}")
    buffers = [own.new_empty((size, *own.shape[1:])) for size in sizes]  # n x (sizes[i], ...)
    buffers[r].copy_(own.detach())  # (C_r, ...)
    return buffers


def _checked(sizes: Sequence[int], n: int) -> Sequence[int]:
    if len(sizes) != n or any(size < 0 for size in sizes):
        raise ValueError(f"sizes {list(sizes)} should name the rows of each of {n} ranks: {n} numbers, each 0 or more")
    return sizes
