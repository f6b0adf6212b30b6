"""What each rank sends and receives in every reference collective: exact messages and bytes.

Plain numbers in, a `Load` out: no torch, no ranks. `n` ranks, `rank` the one asked about, `count` the elements (or
rows, where the collective cuts rows) of the whole tensor and `itemsize` the bytes of one of them. Wire bytes: those
of the tensors handed to send and receive, without what a transport adds. Empty chunks are messages too. The formulas
of the books (2(n-1)/n S and so on) are these for a count that n divides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Load:
    """One rank's part: messages and bytes, each way."""

    sent: int = 0
    bytes_sent: int = 0
    received: int = 0
    bytes_received: int = 0

    def __add__(self, other: Load) -> Load:
        return Load(
            self.sent + other.sent,
            self.bytes_sent + other.bytes_sent,
            self.received + other.received,
            self.bytes_received + other.bytes_received,
        )


def ring_all_reduce(n: int, rank: int, count: int, itemsize: int = 4) -> Load:
    """Each rank sends every chunk twice but for the one after its own, and the one after that, which it sends once."""
    size = _chunks(n, count, itemsize)
    after, whole = (lambda k: size[(rank + k) % n]), count * itemsize
    if n == 1:
        return Load()
    return Load(2 * (n - 1), 2 * whole - after(1) - after(2), 2 * (n - 1), 2 * whole - after(0) - after(1))


def ring_reduce_scatter(n: int, rank: int, count: int, itemsize: int = 4) -> Load:
    """Each rank sends every chunk but its own, and receives every one but its left neighbour's."""
    size, whole = _chunks(n, count, itemsize), count * itemsize
    return Load(n - 1, whole - size[rank], n - 1, whole - size[rank - 1])


def ring_all_gather(n: int, rank: int, sizes: Sequence[int], itemsize: int = 4) -> Load:
    """`sizes`: rows of every rank. Each sends all chunks but its right neighbour's, and receives all but its own."""
    whole = sum(sizes) * itemsize
    return Load(n - 1, whole - sizes[(rank + 1) % n] * itemsize, n - 1, whole - sizes[rank] * itemsize)


def tree_broadcast(n: int, rank: int, count: int, itemsize: int = 4, root: int = 0) -> Load:
    """Seat v (the root has 0) is told once, then tells v + 2^k for every 2^k above v that has a seat below n."""
    seat, whole = (rank - root) % n, count * itemsize
    told = int(seat > 0)
    tells = sum(1 for step in _steps(n) if step > seat and seat + step < n)
    return Load(tells, tells * whole, told, told * whole)


def tree_all_reduce(n: int, rank: int, count: int, itemsize: int = 4) -> Load:
    """The broadcast's messages from rank 0, and the same ones the other way."""
    down = tree_broadcast(n, rank, count, itemsize)
    return down + Load(down.received, down.bytes_received, down.sent, down.bytes_sent)


def halving_doubling_all_reduce(n: int, rank: int, count: int, itemsize: int = 4) -> Load:
    """log2 p swaps each way among p ranks (a power of two), and the whole tensor both ways for each folding pair."""
    p = 2 ** (n.bit_length() - 1)
    whole = Load(1, count * itemsize, 1, count * itemsize)
    if rank >= p:
        return whole
    load = whole if rank + p < n else Load()
    low, high = 0, count
    for step in reversed(_steps(p)):
        middle = (low + high) // 2
        lower, upper = (middle - low) * itemsize, (high - middle) * itemsize
        load += Load(2, lower + upper, 2, lower + upper)  # one half goes now, the other on the way back
        low, high = (middle, high) if rank & step else (low, middle)
    return load


def all_to_all(n: int, rank: int, send_sizes: Sequence[int], receive_sizes: Sequence[int], itemsize: int = 4) -> Load:
    """Every other rank gets its chunk: all that is handed in but this rank's own. The same messages taken in turn."""
    out, into = sum(send_sizes) - send_sizes[rank], sum(receive_sizes) - receive_sizes[rank]
    return Load(n - 1, out * itemsize, n - 1, into * itemsize)


def broadcast_from_root(n: int, rank: int, count: int, itemsize: int = 4, root: int = 0) -> Load:
    """The root sends the whole tensor n-1 times."""
    whole = count * itemsize
    return Load(n - 1, (n - 1) * whole) if rank == root else Load(0, 0, 1, whole)


def all_reduce_via_root(n: int, rank: int, count: int, itemsize: int = 4) -> Load:
    """Everybody's tensor to rank 0, and the sum back."""
    down = broadcast_from_root(n, rank, count, itemsize)
    return down + Load(down.received, down.bytes_received, down.sent, down.bytes_sent)


def all_gather_via_root(n: int, rank: int, sizes: Sequence[int], itemsize: int = 4) -> Load:
    """Everybody's chunk to rank 0, and the whole back."""
    others = sum(sizes[1:]) * itemsize
    up = Load(0, 0, n - 1, others) if rank == 0 else Load(1, sizes[rank] * itemsize)
    return up + broadcast_from_root(n, rank, sum(sizes), itemsize)


def reduce_scatter_via_root(n: int, rank: int, count: int, itemsize: int = 4) -> Load:
    """Everybody's whole tensor to rank 0, and each one's chunk back."""
    size, whole = _chunks(n, count, itemsize), count * itemsize
    if rank == 0:
        return Load(n - 1, whole - size[0], n - 1, (n - 1) * whole)
    return Load(1, whole, 1, size[rank])


def averaging(n: int, rank: int, counts: Sequence[int], itemsize: int = 4) -> Load:
    """Gradients averaged by `ring_all_reduce`, once for each of `counts`: the elements of a gradient, or of a bucket.

    The same for 1 and for m micro-batches, where those before the last are kept local; m times this where they are not.
    """
    return sum((ring_all_reduce(n, rank, count, itemsize) for count in counts), Load())


def averaging_algorithmic(n: int, count: int, itemsize: int = 4) -> float:
    """Bytes each rank sends, and receives, when `count` elements in all are averaged by built-in all-reduces.

    Algorithmic bytes, 2 (n-1)/n of the gradients: what theory says, whatever happens inside and however they are cut.
    """
    return 2 * (n - 1) / n * count * itemsize


def _chunks(n: int, count: int, itemsize: int) -> list[int]:
    """Bytes of the n chunks that `tensor_split` makes."""
    return [(count // n + (i < count % n)) * itemsize for i in range(n)]


def _steps(n: int) -> list[int]:
    return [2**k for k in range((n - 1).bit_length())]
