"""How a tensor is cut into chunks, and how ranks pair up: plain arithmetic, no messages."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def chunk_sizes(count: int, n: int) -> list[int]:
    """Rows in each of n chunks of `count` rows, as `torch.tensor_split` cuts: the first count % n have one row more.

    Returns n sizes that add up to count; some are 0 when count < n. Raises ValueError for n < 1 or count < 0.
    """
    if n < 1:
        raise ValueError(f"cannot cut into {n} chunks: is this rank a member of the group it was given?")
    if count < 0:
        raise ValueError(f"cannot cut {count} rows: a count is 0 or more")
    return [count // n + (i < count % n) for i in range(n)]


def rows(x: torch.Tensor) -> int:
    """C of x (C, ...). Raises ValueError for an x without dimensions, which cannot be cut."""
    if x.dim() == 0:
        raise ValueError("a tensor without dimensions has no rows to cut or gather: pass x.reshape(1)")
    return len(x)


def flat_copy(x: torch.Tensor) -> torch.Tensor:
    """The elements of x (any shape), in order, in new memory without gradient history: (C,)."""
    copy = torch.empty(x.numel(), dtype=x.dtype, device=x.device)  # (C,)
    copy.copy_(x.detach().flatten())
    return copy


def cut(x: torch.Tensor, n: int, sizes: Sequence[int] | None = None) -> list[torch.Tensor]:
    """A copy of x (C, ...), cut along its first dimension: n chunks (C/n, ...), side by side in new memory.

    Writing to a chunk leaves x as it was. `sizes`: rows of each chunk, where they are not those of `chunk_sizes`.
    Raises ValueError for n < 1, an x without dimensions, or sizes that are not n numbers that add up to C.
    """
    sizes = chunk_sizes(rows(x), n) if sizes is None else _checked(sizes, n)
    if sum(sizes) != len(x):
        raise ValueError(f"sizes {list(sizes)} add up to {sum(sizes)}, but the tensor has {len(x)} rows")
    return list(flat_copy(x).view(x.shape).split(list(sizes)))


def empty_chunks(x: torch.Tensor, sizes: Sequence[int], n: int) -> list[torch.Tensor]:
    """Room for what n ranks send: n new tensors (sizes[i], ...), in all else like x (C, ...), not yet filled.

    Raises ValueError unless there is one size, 0 or more, for each of the n ranks.
    """
    return [x.new_empty((size, *x.shape[1:])) for size in _checked(sizes, n)]


def fill_own(chunk: torch.Tensor, x: torch.Tensor) -> None:
    """Copy this rank's own rows x (C_r, ...) into its place, chunk (C_r, ...). Raises ValueError if sizes differ."""
    if chunk.shape != x.shape:
        raise ValueError(f"this rank's size is {len(chunk)} rows in the sizes given, but it holds {len(x)}")
    chunk.copy_(x.detach())


def doublings(n: int) -> list[int]:
    """1, 2, 4, ... below n: the distances of a tree over n ranks, ceil(log2 n) of them. Raises ValueError for n < 1."""
    if n < 1:
        raise ValueError(f"no tree over {n} ranks: is this rank a member of the group it was given?")
    return [2**k for k in range((n - 1).bit_length())]


def power_of_two_within(n: int) -> int:
    """The largest power of two up to n. Raises ValueError for n < 1."""
    if n < 1:
        raise ValueError(f"no power of two within {n} ranks: is this rank a member of the group it was given?")
    return int(2 ** (n.bit_length() - 1))


def _checked(sizes: Sequence[int], n: int) -> Sequence[int]:
    if len(sizes) != n or any(size < 0 for size in sizes):
        raise ValueError(f"sizes {list(sizes)} should name the rows of each of {n} ranks: {n} numbers, each 0 or more")
    return sizes
