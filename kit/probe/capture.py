"""Copies of what is in scope, taken in the rank at the stop, because tensors alias and change afterwards."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor

from kit.probe.code import Code
from kit.probe.operations import dtype_name
from kit.probe.torch_private import storage_number
from kit.trace.facts import Frame, Summary, TensorFact

SMALL = 256  # elements that are copied whole
HEAD = 8
PER_FRAME = 96  # tensors
SUMMARISED_PER_STOP = 1 << 23  # elements
_SQUARABLE = 1e15  # beyond it, or below its inverse, numbers are scaled before they are squared
_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.Size)


class Capture:
    """Turns frames into facts within a budget of bytes for the whole run.

    A tensor that has not changed since it was last seen is the same object again, so that a record of many stops stays
    small.
    """

    def __init__(self, code: Code, budget: int) -> None:
        self._code = code
        self._left = budget
        self._seen: dict[tuple[str, str], TensorFact] = {}
        self._summarise = SUMMARISED_PER_STOP

    @property
    def spent(self) -> bool:
        return self._left <= 0

    def frames(self, frame: FrameType) -> tuple[Frame, ...]:
        self._summarise = SUMMARISED_PER_STOP
        with torch.no_grad():
            return tuple(self._frame(f) for f in self._code.stack(frame))

    def _frame(self, frame: FrameType) -> Frame:
        scalars: list[tuple[str, str]] = []
        tensors: list[TensorFact] = []
        for name, value in list(frame.f_locals.items()):
            if name.startswith("__"):
                continue
            if isinstance(value, _PLAIN) or _is_plain_tuple(value):
                scalars.append((name, _short(value)))
            elif not self.spent:
                try:
                    for path, tensor in _tensors(name, value):
                        if len(tensors) == PER_FRAME:
                            break
                        tensors.append(self._tensor(frame.f_code.co_name, path, tensor))
                except Exception as error:  # an object half made, a tensor without memory: looking must not end it
                    scalars.append((name, f"{type(value).__name__}, not readable here ({type(error).__name__})"))
        return Frame(self._code.place_of(frame), tuple(tensors), tuple(scalars))

    def _tensor(self, function: str, name: str, tensor: torch.Tensor) -> TensorFact:
        local = _local(tensor)
        materialised = _has_memory(local)
        fact = TensorFact(
            name=name,
            shape=tuple(local.shape),
            dtype=dtype_name(local.dtype),
            device=str(local.device),
            values=_values(local) if materialised and local.numel() <= SMALL else None,
            summary=None,
            storage=storage_number(local) if materialised else 0,
            offset=int(local.storage_offset()) if materialised else 0,
            requires_grad=tensor.requires_grad,
        )
        if materialised and SMALL < local.numel() <= self._summarise:
            self._summarise -= local.numel()
            fact = replace(fact, summary=summary(local))
        before = self._seen.get((function, name))
        if before is not None and _same(before, fact):
            return before
        self._seen[function, name] = fact
        self._left -= 200 + (fact.values.nbytes if fact.values is not None else 0)
        return fact


def summary(tensor: torch.Tensor) -> Summary:
    """Minimum, maximum, mean and (population) standard deviation over the finite elements; NaN and infinities
    counted.
    """
    work = _comparable(tensor.reshape(-1))
    head = tuple(work[:HEAD].tolist())
    low, high = _bounds(work)
    nans = infs = 0
    if not math.isfinite(high - low):  # NaN and infinities show in the bounds: no pass over the elements to find them
        nans, infs = int(torch.isnan(work).sum()), int(torch.isinf(work).sum())
        work = work[torch.isfinite(work)]
        if work.numel() == 0:
            return Summary(math.nan, math.nan, math.nan, math.nan, nans, infs, head)
        low, high = _bounds(work)
    if low == high:
        return Summary(low, high, low, 0.0, nans, infs, head)
    reach = max(-low, high)
    scale = 1.0 if 1 / _SQUARABLE < reach < _SQUARABLE else reach
    if scale != 1.0:
        work = work / scale
    mean = work.mean()
    std = torch.linalg.vector_norm(work - mean) / math.sqrt(work.numel())  # std_mean is ten times slower on a CPU
    return Summary(low, high, float(mean) * scale, float(std) * scale, nans, infs, head)


def _comparable(flat: torch.Tensor) -> torch.Tensor:
    """Numbers that have an order and enough digits: absolute values of complex ones, whole numbers exact to 2^53."""
    if flat.is_complex():
        return flat.abs()
    if not flat.is_floating_point():
        return flat.double()
    return flat.float() if flat.element_size() < 4 else flat


def _bounds(work: torch.Tensor) -> tuple[float, float]:
    low, high = torch.aminmax(work)
    return float(low), float(high)


def _tensors(name: str, value: Any, depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    """(path, tensor) for a tensor, the parameters of a module, and containers up to two deep; then gradients."""
    if isinstance(value, torch.Tensor):
        yield name, value
        if value.is_leaf and value.grad is not None:
            yield f"{name}.grad", value.grad
    elif isinstance(value, torch.nn.Module) and "_parameters" in vars(value):  # not before its __init__ has run
        for path, parameter in value.named_parameters():
            yield from _tensors(f"{name}.{path}", parameter, 2)
    elif depth < 2 and isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _tensors(f"{name}[{index}]", item, depth + 1)
    elif depth < 2 and isinstance(value, dict):
        for key, item in value.items():
            yield from _tensors(f"{name}[{key!r}]", item, depth + 1)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """The rank's own part of a DTensor, the memory of a result that is still on its way: looking waits for nothing."""
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return local.elem if isinstance(local, AsyncCollectiveTensor) else local.detach()


def _has_memory(tensor: torch.Tensor) -> bool:
    """Not so for meta and sparse tensors, nor for parameters that FSDP has gathered and let go again."""
    if tensor.device.type == "meta" or tensor.layout != torch.strided:
        return False
    return tensor.numel() == 0 or tensor.untyped_storage().nbytes() > 0


def _values(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype in (torch.bfloat16, torch.float16) or "float8" in str(tensor.dtype):
        tensor = tensor.float()
    return tensor.to("cpu", copy=True).contiguous().numpy()


def _same(a: TensorFact, b: TensorFact) -> bool:
    if replace(a, values=None) != replace(b, values=None):
        return False
    if a.values is None or b.values is None:
        return a.values is b.values and (a.summary is not None or math.prod(a.shape) == 0)
    return np.array_equal(a.values, b.values, equal_nan=a.values.dtype.kind in "fc")


def _is_plain_tuple(value: Any) -> bool:
    return (
        isinstance(value, tuple | list)
        and 0 < len(value) <= 8
        and all(isinstance(v, bool | int | float) for v in value)
    )


def _short(value: Any) -> str:
    text = repr(value).removeprefix("torch.")
    return text if len(text) <= 60 else text[:57] + "..."
