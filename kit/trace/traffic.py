"""Bytes of one rank's part in one operation, in three kinds that are never mixed.

*payload*: the tensor handed in. *wire*: observed, for send and receive, whose messages are the tensors themselves.
*algorithmic*: what the standard algorithm moves for a built-in collective, whose inside cannot be seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from kit.trace.facts import Operation, Region
from kit.trace.text import canonical, is_message

ITEM_SIZES = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of three kinds: compare like with like."""

    payload: int
    algorithmic: float
    wire: int

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.payload + other.payload, self.algorithmic + other.algorithmic, self.wire + other.wire)


def item_size(dtype: str) -> int:
    """Bytes of one element; one for the eight-bit formats ('float8_e4m3fn').

    Raises ValueError for a dtype it does not know.
    """
    if dtype in ITEM_SIZES:
        return ITEM_SIZES[dtype]
    if dtype.startswith("float8"):
        return 1
    raise ValueError(f"no size is known for dtype {dtype!r}: add it to kit.trace.traffic.ITEM_SIZES")


def nbytes(regions: Iterable[Region]) -> int:
    """Bytes of all the regions together."""
    return sum(prod(region.shape) * item_size(region.dtype) for region in regions)


def whole_buffer(op: Operation) -> int:
    """S of the formulas, in bytes, as this rank knows it.

    The tensor itself for all_reduce, broadcast and reduce; the gathered whole for gather and all_gather (also where
    this rank hands in a piece only: piece x n); the whole before it is spread for scatter, reduce_scatter and
    all_to_all. Falls back on `Operation.payload` where an operation lists no regions.
    """
    if not op.regions:
        return op.payload
    name, n = canonical(op.name), len(op.ranks)
    ins, outs = nbytes(op.inputs), nbytes(op.outputs)
    if name in ("gather", "all_gather"):
        return outs or ins * n
    if name in ("scatter", "reduce_scatter"):
        return ins or outs * n
    return ins or outs


def algorithmic_bytes(op: Operation) -> tuple[float, float]:
    """(sent, received) by one rank in one built-in collective, S the whole buffer, n ranks; (0, 0) for send and recv.

    all_reduce (ring): 2(n-1)/n S both ways. all_gather, reduce_scatter (ring), all_to_all (pairwise): (n-1)/n S both
    ways; uneven all_to_all with listed pieces: everything but the rank's own piece. gather: (n-1)/n S into the root,
    S/n from each other rank; scatter the reverse. broadcast: a chain in group order from the root, so the root sends S,
    the last rank of the chain receives S, those between do both; reduce is the chain backwards. barrier: none.
    Over all ranks sent equals received, and no rank moves more than the busiest link of nccl-tests' bus bandwidth.
    """
    name, n, s = canonical(op.name), len(op.ranks), float(whole_buffer(op))
    if n < 2 or is_message(name) or name.endswith("barrier"):
        return 0.0, 0.0
    share = s * (n - 1) / n
    if name == "all_reduce":
        return 2 * share, 2 * share
    if name in ("all_gather", "reduce_scatter"):
        return share, share
    if name == "all_to_all":
        return _spread(op, op.inputs, share), _spread(op, op.outputs, share)
    if op.root is None or op.root not in op.ranks or op.rank not in op.ranks:
        return 0.0, 0.0
    step = (op.ranks.index(op.rank) - op.ranks.index(op.root)) % n  # places after the root
    if name == "broadcast":
        return (s if step < n - 1 else 0.0), (s if step > 0 else 0.0)
    if name == "reduce":
        return (s if step > 0 else 0.0), (s if step < n - 1 else 0.0)
    if name == "gather":
        return (0.0, share) if step == 0 else (s / n, 0.0)
    if name == "scatter":
        return (share, 0.0) if step == 0 else (0.0, s / n)
    return 0.0, 0.0


def sent(op: Operation) -> Traffic:
    """What one rank sent in one operation whose data moved."""
    return _one_way(op, 0, "send")


def received(op: Operation) -> Traffic:
    """What one rank received in one operation whose data moved."""
    return _one_way(op, 1, "recv")


def _one_way(op: Operation, way: int, message: str) -> Traffic:
    if is_message(op.name):
        size = message_bytes(op) if canonical(op.name) == message else 0
        return Traffic(size, 0.0, size)
    return Traffic(op.payload, algorithmic_bytes(op)[way], 0)


def message_bytes(op: Operation) -> int:
    """Of a send or a receive."""
    return nbytes(op.regions) if op.regions else op.payload


def _spread(op: Operation, pieces: Sequence[Region], even: float) -> float:
    if len(pieces) != len(op.ranks) or op.rank not in op.ranks:
        return even
    own = pieces[op.ranks.index(op.rank)]
    return float(nbytes(pieces) - nbytes([own]))
