"""What a communication does to tensors, done in one memory: all its parts are here, so it is copying and adding.

A part is what one rank asked for, in the order of the group. Sums go in that order, whatever a library's algorithm
would do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kit.probe.operations import OperationCall, reduce_name

Tensors = Sequence[torch.Tensor]
Splits = Sequence[Sequence[int]]  # by rank: how many rows it has for each rank; none where all get the same

REDUCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "SUM": torch.add,
    "AVG": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}


@torch.no_grad()
def move(parts: Sequence[OperationCall], splits: Splits | None = None) -> None:
    """Gives every part its outputs. splits: of an all_to_all on single tensors. ValueError for what cannot be done."""
    if splits is None:
        MOVES[parts[0].name](parts)
    else:
        _all_to_all_of_rows(parts, splits)


@torch.no_grad()
def hand_over(send: OperationCall, receive: OperationCall) -> None:
    """A message: same number of elements, whatever the shapes."""
    receive.outputs[0].copy_(send.inputs[0].reshape(receive.outputs[0].shape))


def reduced(tensors: Tensors, op: Any) -> torch.Tensor:
    """One tensor of the same shape. op: c10d's ReduceOp. ValueError for one that cannot be done here."""
    name = reduce_name(op)
    if name not in REDUCTIONS:
        raise ValueError(f"ranks that are threads cannot reduce with {name}: use one of {', '.join(REDUCTIONS)}")
    total = tensors[0].clone()
    for tensor in tensors[1:]:
        total = REDUCTIONS[name](total, tensor)
    return total / len(tensors) if name == "AVG" else total


def _all_reduce(parts: Sequence[OperationCall]) -> None:
    for same in zip(*(part.inputs for part in parts), strict=True):
        total = reduced(same, parts[0].reduce)
        for tensor in same:
            tensor.copy_(total)


def _reduce(parts: Sequence[OperationCall]) -> None:
    root = parts[parts[0].root or 0]
    for mine, same in zip(root.inputs, zip(*(part.inputs for part in parts), strict=True), strict=True):
        mine.copy_(reduced(same, root.reduce))


def _broadcast(parts: Sequence[OperationCall]) -> None:
    root = parts[parts[0].root or 0]
    for part in parts:
        for mine, its in zip(part.inputs, root.inputs, strict=True):
            mine.copy_(its)


def _all_gather(parts: Sequence[OperationCall]) -> None:
    """For each input one output that holds all, or as many outputs as there are ranks."""
    for part in parts:
        for outputs, *given in zip(_shared(part.outputs, len(part.inputs)), *(p.inputs for p in parts), strict=True):
            _fill(outputs, given)


def _gather(parts: Sequence[OperationCall]) -> None:
    _fill(parts[parts[0].root or 0].outputs, [part.inputs[0] for part in parts])


def _scatter(parts: Sequence[OperationCall]) -> None:
    _fill([part.outputs[0] for part in parts], parts[parts[0].root or 0].inputs)


def _reduce_scatter(parts: Sequence[OperationCall]) -> None:
    for number in range(len(parts[0].outputs)):
        whole = [_flat(_shared(part.inputs, len(part.outputs))[number]) for part in parts]
        _fill([part.outputs[number] for part in parts], [reduced(whole, parts[0].reduce)])


def _all_to_all(parts: Sequence[OperationCall]) -> None:
    taken = [[part.inputs[me].clone() for part in parts] for me in range(len(parts))]
    for part, mine in zip(parts, taken, strict=True):
        _fill(part.outputs, mine)


def _all_to_all_of_rows(parts: Sequence[OperationCall], splits: Splits) -> None:
    n = len(parts)
    rows = [list(own) or [len(part.inputs[0]) // n] * n for part, own in zip(parts, splits, strict=True)]
    pieces = [part.inputs[0].split(own) for part, own in zip(parts, rows, strict=True)]
    for me, part in enumerate(parts):
        _fill(part.outputs, [given[me] for given in pieces])


def _nothing(parts: Sequence[OperationCall]) -> None:
    """Only its ranks meet."""


MOVES: dict[str, Callable[[Sequence[OperationCall]], None]] = {
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "gather": _gather,
    "scatter": _scatter,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "barrier": _nothing,
    "new_group": _nothing,
    "init_process_group": _nothing,
}


def _shared(tensors: Tensors, count: int) -> list[Tensors]:
    """Tensors that belong to `count` others, as many to each."""
    each = len(tensors) // max(1, count)
    return [tensors[i * each : (i + 1) * each] for i in range(count)]


def _flat(tensors: Tensors) -> torch.Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _fill(outputs: Tensors, given: Tensors) -> None:
    """Writes what is given into the outputs, end to end."""
    flat, at = _flat(given), 0
    for output in outputs:
        output.copy_(flat[at : at + output.numel()].view(output.shape))
        at += output.numel()
