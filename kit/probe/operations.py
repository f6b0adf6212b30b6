"""What a process group is asked to do, read as facts before it is done.

`READERS[method](*arguments)` turns one call on a c10d ProcessGroup into an
`OperationCall`: the public name, the memory it touches, and what must agree between the ranks. All of it runs at every
operation of a loop that is recorded at full speed, with the processor's caches full of the learner's own work, so it
is short.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.distributed as dist

from kit.probe.torch_private import storage_number
from kit.trace.facts import Region


@dataclass(slots=True)
class OperationCall:
    """An operation as one rank asks for it. Peers and roots are still ranks within the group."""

    name: str
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]
    whole: str = "in"  # where the whole buffer of the formulas is: "in", "out" or, for what works in place, "inout"
    root: int | None = None
    peer: int | None = None  # -1: any source
    tag: int | None = None
    reduce: Any = None  # c10d's own ReduceOp, or the options that hold it

    @property
    def payload(self) -> int:
        return payload_of(self.seen(), self.whole)

    def seen(self) -> list[Seen]:
        """The tensors as they are now: regions in the making, since the tensors themselves must not be kept."""
        if self.whole == "inout":
            return [_seen("inout", tensor) for tensor in self.inputs]
        return [_seen("in", tensor) for tensor in self.inputs] + [_seen("out", tensor) for tensor in self.outputs]


Seen = tuple[Any, int, Any, torch.Size, torch.dtype]  # role, storage, offset, shape, dtype


def _seen(role: str, tensor: torch.Tensor) -> Seen:
    storage = storage_number(tensor)
    return role, storage, tensor.storage_offset() if storage else 0, tensor.shape, tensor.dtype


def region(seen: Seen) -> Region:
    role, storage, offset, shape, dtype = seen
    return Region(role, storage, int(offset), tuple(shape), dtype_name(dtype))


def payload_of(seen: list[Seen], whole: str) -> int:
    """Bytes of the whole buffer; a rank without one counts the piece it hands in or is given."""
    by_role = {"in": 0, "out": 0, "inout": 0}
    for role, _, _, shape, dtype in seen:
        by_role[role] += math.prod(shape) * dtype.itemsize
    return by_role[whole] or by_role["in"] or by_role["out"]


@cache
def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _flat(tensors: Any) -> list[torch.Tensor]:
    """Tensors of a tensor, a list, or the list of lists that c10d wraps around per-device lists."""
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    if tensors and isinstance(tensors[0], torch.Tensor):
        return list(tensors)
    return [t for item in (tensors or []) for t in _flat(item)]


def reduce_name(op: Any) -> str | None:
    """'SUM', 'AVG', ... of a ReduceOp or of the options of a reduction; nothing said is a sum."""
    op = getattr(op, "reduceOp", op)
    name = str(getattr(op, "op", op)).rsplit(".", 1)[-1]
    return name if name.isupper() else "SUM"


def _options(arguments: tuple[Any, ...], position: int) -> Any:
    return arguments[position] if len(arguments) > position else None


def _all_reduce(tensors: Any, options: Any = dist.ReduceOp.SUM, *_: Any) -> OperationCall:
    flat = _flat(tensors)
    return OperationCall("all_reduce", flat, flat, "inout", reduce=options)


def _reduce(tensors: Any, options: Any, op: Any = dist.ReduceOp.SUM, *_: Any) -> OperationCall:
    flat, root = _flat(tensors), getattr(options, "rootRank", options)
    return OperationCall("reduce", flat, flat, "inout", root=root, reduce=getattr(options, "reduceOp", op))


def _broadcast(tensors: Any, options: Any = 0, *_: Any) -> OperationCall:
    flat = _flat(tensors)
    return OperationCall("broadcast", flat, flat, "inout", root=getattr(options, "rootRank", options))


def _gather(name: str) -> Callable[..., OperationCall]:
    """Outputs are the whole buffer of the formulas; a rank without one counts the piece it hands in."""

    def reader(*arguments: Any) -> OperationCall:
        outputs, inputs = _flat(arguments[0]), _flat(arguments[1])
        root = getattr(_options(arguments, 2), "rootRank", None) if name == "gather" else None
        return OperationCall(name, inputs, outputs, "out", root=root)

    return reader


def _scatter(name: str) -> Callable[..., OperationCall]:
    """Inputs are the whole buffer of the formulas; a rank without one counts the piece it is given."""

    def reader(*arguments: Any) -> OperationCall:
        outputs, inputs, options = _flat(arguments[0]), _flat(arguments[1]), _options(arguments, 2)
        root = getattr(options, "rootRank", None) if name == "scatter" else None
        reduce = getattr(options, "reduceOp", dist.ReduceOp.SUM) if name == "reduce_scatter" else None
        return OperationCall(name, inputs, outputs, root=root, reduce=reduce)

    return reader


def _all_to_all(outputs: Any, inputs: Any, *_: Any) -> OperationCall:
    return OperationCall("all_to_all", _flat(inputs), _flat(outputs))


def _send(tensors: Any, peer: int, tag: int) -> OperationCall:
    return OperationCall("send", _flat(tensors), [], peer=peer, tag=tag)


def _recv(tensors: Any, peer: int, tag: int) -> OperationCall:
    return OperationCall("recv", [], _flat(tensors), "out", peer=peer, tag=tag)


def _recv_any(tensors: Any, tag: int) -> OperationCall:
    return OperationCall("recv", [], _flat(tensors), "out", peer=-1, tag=tag)


def _barrier(*_: Any) -> OperationCall:
    return OperationCall("barrier", [], [])


# By the method of a c10d ProcessGroup: the facts of one call on it.
READERS: dict[str, Callable[..., OperationCall]] = {
    "broadcast": _broadcast,
    "allreduce": _all_reduce,
    "allreduce_coalesced": _all_reduce,
    "reduce": _reduce,
    "allgather": _gather("all_gather"),
    "allgather_coalesced": _gather("all_gather"),
    "_allgather_base": _gather("all_gather"),
    "all_gather_single": _gather("all_gather"),
    "allgather_into_tensor_coalesced": _gather("all_gather"),
    "all_gather_single_coalesced": _gather("all_gather"),
    "gather": _gather("gather"),
    "scatter": _scatter("scatter"),
    "reduce_scatter": _scatter("reduce_scatter"),
    "_reduce_scatter_base": _scatter("reduce_scatter"),
    "reduce_scatter_single": _scatter("reduce_scatter"),
    "reduce_scatter_tensor_coalesced": _scatter("reduce_scatter"),
    "reduce_scatter_single_coalesced": _scatter("reduce_scatter"),
    "alltoall": _all_to_all,
    "alltoall_base": _all_to_all,
    "all_to_all_single": _all_to_all,
    "send": _send,
    "recv": _recv,
    "recv_anysource": _recv_any,
    "barrier": _barrier,
}
