"""Who sends how much to whom in which round: the reference collectives of the topic as plain numbers.

Each function yields the rounds of one collective on n ranks (from 0) for a buffer of `count` elements, cut into chunks
as `torch.tensor_split` does. In a round a rank sends one message at most and receives one at most, and goes on when
both are done. A message of 0 elements is a message. All the arrays together grow with one round, not with all rounds:
a round is made when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class Round(NamedTuple):
    """Messages that are under way at the same time: message i goes from source[i] to destination[i]."""

    source: Ints
    destination: Ints
    elements: Ints


def ring_reduce_scatter(n: int, count: int, shift: int = 1) -> Iterator[Round]:
    """n-1 rounds: in round s rank r sends chunk r-s-shift to the right."""
    rank, size = np.arange(n), _chunks(n, count)
    right = (rank + 1) % n
    for s in range(n - 1):
        yield Round(rank, right, size[(rank - s - shift) % n])


def ring_all_gather(n: int, count: int, shift: int = 0) -> Iterator[Round]:
    """n-1 rounds: in round s rank r sends chunk r-s+shift to the right. count: elements of the gathered whole."""
    yield from ring_reduce_scatter(n, count, -shift)


def ring_all_reduce(n: int, count: int) -> Iterator[Round]:
    """The two above, one after the other: after the first, rank r owns chunk r+1."""
    yield from ring_reduce_scatter(n, count, shift=0)
    yield from ring_all_gather(n, count, shift=1)


def tree_broadcast(n: int, count: int) -> Iterator[Round]:
    """ceil(log2 n) rounds from rank 0: those that know tell as many that do not."""
    for step in _doublings(n):
        teller = np.arange(min(step, n - step))
        yield Round(teller, teller + step, np.full(len(teller), count))


def tree_reduce(n: int, count: int) -> Iterator[Round]:
    """The broadcast backwards."""
    for step in reversed(_doublings(n)):
        adder = np.arange(min(step, n - step))
        yield Round(adder + step, adder, np.full(len(adder), count))


def tree_all_reduce(n: int, count: int) -> Iterator[Round]:
    """Up to rank 0, then down."""
    yield from tree_reduce(n, count)
    yield from tree_broadcast(n, count)


def halving_doubling_all_reduce(n: int, count: int) -> Iterator[Round]:
    """log2 p swaps of halves, quarters, ... and back; where n is no power of two, n-p ranks fold in first."""
    p = 2 ** (n.bit_length() - 1)
    folded = np.arange(p, n)
    whole = np.full(len(folded), count)
    if len(folded):
        yield Round(folded, folded - p, whole)
    rank = np.arange(p)
    low, high = np.zeros(p, dtype=int), np.full(p, count)
    swaps = []
    for distance in reversed(_doublings(p)):
        middle = (low + high) // 2
        lower = (rank & distance) == 0  # keeps the lower half, sends the upper
        kept, given = np.where(lower, middle - low, high - middle), np.where(lower, high - middle, middle - low)
        low, high = np.where(lower, low, middle), np.where(lower, middle, high)
        swaps.append((rank ^ distance, kept))
        yield Round(rank, rank ^ distance, given)
    for partner, kept in reversed(swaps):
        yield Round(rank, partner, kept)
    if len(folded):
        yield Round(folded - p, folded, whole)


def all_to_all(n: int, count: int) -> Iterator[Round]:
    """n-1 rounds: in round s rank r sends its chunk for rank r+s straight to it."""
    rank, size = np.arange(n), _chunks(n, count)
    for s in range(1, n):
        yield Round(rank, (rank + s) % n, size[(rank + s) % n])


def broadcast_from_root(n: int, count: int) -> Iterator[Round]:
    """n-1 rounds of one message: rank 0 tells one rank after the other."""
    for other in range(1, n):
        yield Round(np.array([0]), np.array([other]), np.array([count]))


def all_reduce_via_root(n: int, count: int) -> Iterator[Round]:
    """Everybody's buffer to rank 0, one after the other, then the sum back."""
    for other in range(1, n):
        yield Round(np.array([other]), np.array([0]), np.array([count]))
    yield from broadcast_from_root(n, count)


SCHEDULES: dict[str, Callable[[int, int], Iterator[Round]]] = {
    "ring_all_reduce": ring_all_reduce,
    "ring_reduce_scatter": ring_reduce_scatter,
    "ring_all_gather": ring_all_gather,
    "tree_broadcast": tree_broadcast,
    "tree_reduce": tree_reduce,
    "tree_all_reduce": tree_all_reduce,
    "halving_doubling_all_reduce": halving_doubling_all_reduce,
    "all_to_all": all_to_all,
    "broadcast_from_root": broadcast_from_root,
    "all_reduce_via_root": all_reduce_via_root,
}


def _chunks(n: int, count: int) -> Ints:
    return count // n + (np.arange(n) < count % n)


def _doublings(n: int) -> list[int]:
    return [2**k for k in range((n - 1).bit_length())]
