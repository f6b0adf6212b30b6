"""What a process group is asked to do, read as facts before it is done.

`read(method, arguments)` turns one call on a c10d ProcessGroup (the face that DDP, FSDP2, DTensor, functional
collectives and
torch.distributed's own functions all end in) into a `Draft`: the public name, the memory it touches, and what must
agree between the ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from kit.trace.facts import Region

POINT_TO_POINT = frozenset({"send", "recv"})


@dataclass(slots=True)
class Draft:
    """An operation as one rank asks for it. Peers and roots are still ranks within the group."""

    name: str
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]
    in_place: bool = False  # inputs are outputs
    payload: int = 0
    root: int | None = None
    peer: int | None = None  # -1: any source
    tag: int | None = None
    reduce: str | None = None

    def regions(self) -> tuple[Region, ...]:
        if self.in_place:
            return tuple(region(t, "inout") for t in self.inputs)
        return tuple(region(t, "in") for t in self.inputs) + tuple(region(t, "out") for t in self.outputs)


def region(tensor: torch.Tensor, role: Any) -> Region:
    offset = int(tensor.storage_offset()) if tensor.layout == torch.strided else 0
    return Region(role, storage_of(tensor), offset, tuple(tensor.shape), dtype_of(tensor))


def storage_of(tensor: torch.Tensor) -> int:
    """A number that is equal for tensors that share memory; 0 where there is none of its own to share."""
    return tensor.untyped_storage()._cdata if tensor.layout == torch.strided else 0


def dtype_of(tensor: torch.Tensor) -> str:
    return _dtype_name(tensor.dtype)


@cache
def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def nbytes(tensors: list[torch.Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def _flat(tensors: Any) -> list[torch.Tensor]:
    """Tensors of a tensor, a list, or the list of lists that c10d wraps around per-device lists."""
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    return [t for item in (tensors or []) for t in _flat(item)]


def _reduce_name(options: Any) -> str | None:
    op = getattr(options, "reduceOp", options)
    return _enum_name(getattr(op, "op", op))


@cache
def _enum_name(op: Any) -> str | None:
    """Remembered: it is asked for at every reduction of a loop that is to run at full speed."""
    name = str(op).rsplit(".", 1)[-1]
    return name if name.isupper() else None


def _options(arguments: tuple[Any, ...], position: int) -> Any:
    return arguments[position] if len(arguments) > position else None


def _in_place(name: str) -> Callable[..., Draft]:
    def reader(*arguments: Any) -> Draft:
        tensors, options = _flat(arguments[0]), _options(arguments, 1)
        root = getattr(options, "rootRank", None) if name in ("broadcast", "reduce") else None
        reduce = None if name == "broadcast" else (_reduce_name(options) or "SUM")
        return Draft(name, tensors, tensors, in_place=True, payload=nbytes(tensors), root=root, reduce=reduce)

    return reader


def _gather(name: str) -> Callable[..., Draft]:
    """Outputs are the whole buffer of the formulas; a rank without one counts the piece it hands in."""

    def reader(*arguments: Any) -> Draft:
        outputs, inputs = _flat(arguments[0]), _flat(arguments[1])
        root = getattr(_options(arguments, 2), "rootRank", None) if name == "gather" else None
        return Draft(name, inputs, outputs, payload=nbytes(outputs) or nbytes(inputs), root=root)

    return reader


def _scatter(name: str) -> Callable[..., Draft]:
    """Inputs are the whole buffer of the formulas; a rank without one counts the piece it is given."""

    def reader(*arguments: Any) -> Draft:
        outputs, inputs, options = _flat(arguments[0]), _flat(arguments[1]), _options(arguments, 2)
        root = getattr(options, "rootRank", None) if name == "scatter" else None
        reduce = (_reduce_name(options) or "SUM") if name == "reduce_scatter" else None
        return Draft(name, inputs, outputs, payload=nbytes(inputs) or nbytes(outputs), root=root, reduce=reduce)

    return reader


def _all_to_all(outputs: Any, inputs: Any, *_: Any) -> Draft:
    return Draft("all_to_all", _flat(inputs), _flat(outputs), payload=nbytes(_flat(inputs)))


def _send(tensors: Any, peer: int, tag: int) -> Draft:
    return Draft("send", _flat(tensors), [], payload=nbytes(_flat(tensors)), peer=peer, tag=tag)


def _recv(tensors: Any, peer: int, tag: int) -> Draft:
    return Draft("recv", [], _flat(tensors), payload=nbytes(_flat(tensors)), peer=peer, tag=tag)


def _barrier(*_: Any) -> Draft:
    return Draft("barrier", [], [])


READERS: dict[str, Callable[..., Draft]] = {
    "broadcast": _in_place("broadcast"),
    "allreduce": _in_place("all_reduce"),
    "allreduce_coalesced": _in_place("all_reduce"),
    "reduce": _in_place("reduce"),
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
    "recv_anysource": lambda tensors, tag: _recv(tensors, -1, tag),
    "barrier": _barrier,
}


def read(method: str, arguments: tuple[Any, ...]) -> Draft:
    """The facts of one call on a process group."""
    return READERS[method](*arguments)
