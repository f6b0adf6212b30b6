"""Values as the Python text that makes them again, for a script that stands on its own."""

from __future__ import annotations

import ast
import dataclasses
import enum
import math
import types
from collections.abc import Callable
from typing import Any

SMALL = 64  # elements of a tensor that are still written out

Reference = Callable[[Any], str]  # makes sure that the script defines a class or function; returns its name


class _NoText(Exception):
    """Nothing can be written that evaluates to a value."""


def expression(value: Any, reference: Reference, seed: str = "0") -> str | None:
    """Text that evaluates to `value`, or None where there is none.

    Tensors up to 64 elements, and constant ones of any size, are written out; a larger one becomes random numbers of
    its shape and dtype, drawn with `seed` (text: '3', '3 + rank'). Layers of torch.nn begin with new weights. The text
    counts on the names torch and dist, and on torch's default device being the rank's.
    """
    try:
        return _Writer(reference, seed).text(value)
    except _NoText:
        return None


def is_drawn(text: str) -> bool:
    """Whether an expression draws random numbers in place of those that were too many to write."""
    return "manual_seed(" in text


@dataclasses.dataclass(frozen=True)
class _Writer:
    reference: Reference
    seed: str

    def text(self, value: Any) -> str:
        if value is None or value is Ellipsis or isinstance(value, str | bytes | complex | range):
            return repr(value)
        if isinstance(value, enum.Enum):
            return f"{self.reference(type(value))}.{value.name}"
        if type(value) in (bool, int, float):
            return _number(value)
        if type(value) in (list, tuple, set, frozenset, dict):
            return self.container(value)
        if isinstance(value, types.FunctionType | types.BuiltinFunctionType | type):
            return self.reference(value)
        if dataclasses.is_dataclass(value) and type(value).__module__.split(".")[0] not in ("torch", "numpy"):
            parts = {part.name: getattr(value, part.name) for part in dataclasses.fields(value) if part.init}
            named = ", ".join(f"{name}={self.text(part)}" for name, part in parts.items())
            return f"{self.reference(type(value))}({named})"
        return self.of_torch(value)

    def container(self, value: Any) -> str:
        if type(value) is dict:
            return f"{{{', '.join(f'{self.text(key)}: {self.text(item)}' for key, item in value.items())}}}"
        parts = [self.text(item) for item in value]
        inside = ", ".join(parts)
        if type(value) is tuple:
            return f"({inside},)" if len(parts) == 1 else f"({inside})"
        if type(value) is list:
            return f"[{inside}]"
        if type(value) is set and parts:
            return f"{{{inside}}}"
        return f"{type(value).__name__}({f'[{inside}]' if parts else ''})"

    def of_torch(self, value: Any) -> str:
        import numpy as np
        import torch
        import torch.distributed as dist

        match value:
            case torch.nn.Parameter():
                frozen = "" if value.requires_grad else ", False"
                return f"torch.nn.Parameter({_tensor(value.data, self.seed)}{frozen})"
            case torch.Tensor():
                return _tensor(value.detach(), self.seed) + (".requires_grad_()" if value.requires_grad else "")
            case torch.nn.Module():
                return self.layer(value)
            case torch.device():
                return "torch.get_default_device()"
            case torch.dtype():
                return str(value)
            case torch.Size():
                return f"torch.Size({list(value)})"
            case dist.ReduceOp.RedOpType():
                return f"dist.ReduceOp.{value.name}"
            case np.generic():
                return self.text(value.item())
            case np.ndarray() if value.dtype.kind in "biuf":
                return f"{_tensor(torch.from_numpy(value.copy()), self.seed)}.cpu().numpy()"
        raise _NoText

    def layer(self, layer: Any) -> str:
        """A layer of torch.nn as its constructor call, read off its repr and tried: the new one has the same shapes."""
        import torch

        kind = type(layer)
        if getattr(torch.nn, kind.__name__, None) is not kind:
            raise _NoText
        if kind in (torch.nn.Sequential, torch.nn.ModuleList):
            inside = ", ".join(self.text(child) for child in layer.children())
            return (
                f"torch.nn.Sequential({inside})" if kind is torch.nn.Sequential else f"torch.nn.ModuleList([{inside}])"
            )
        text = f"torch.nn.{layer!r}"
        try:
            call = ast.parse(text, mode="eval").body
            if not isinstance(call, ast.Call):
                raise _NoText
            positional = [ast.literal_eval(node) for node in call.args]
            named = {node.arg: ast.literal_eval(node.value) for node in call.keywords if node.arg}
            again = kind(*positional, **named)
        except (SyntaxError, ValueError, TypeError) as error:  # its repr is no call that its class takes
            raise _NoText from error
        if _shapes(layer) != _shapes(again):
            raise _NoText
        to = next((value.dtype for value in layer.parameters() if value.dtype != torch.float32), None)
        return text if to is None else f"{text}.to({to})"


def _shapes(layer: Any) -> dict[str, Any]:
    return {name: value.shape for name, value in layer.state_dict().items()}


def _number(value: float) -> str:
    return repr(value) if isinstance(value, int) or math.isfinite(value) else f'float("{value}")'


def _tensor(x: Any, seed: str) -> str:
    """x as text: whole when small or constant, else random numbers of its shape and dtype."""
    import torch

    shape, dtype = tuple(x.shape), str(x.dtype)
    if x.numel() == 0:
        return f"torch.empty({shape}, dtype={dtype})"
    flat = x.cpu().flatten()
    if x.dim() and x.numel() > 1 and bool((flat == flat[0]).all()):
        return f"torch.full({shape}, {_number(flat[0].item())}, dtype={dtype})"
    if x.numel() <= SMALL:
        parts = [_number(v) if isinstance(v, int | float) else repr(v) for v in flat.tolist()]
        inside = ", ".join(parts) if x.dim() else parts[0]
        text = f"torch.tensor([{inside}], dtype={dtype})" if x.dim() else f"torch.tensor({inside}, dtype={dtype})"
        return text if x.dim() <= 1 else f"{text}.view{shape}"
    drawn = f'generator=torch.Generator("cpu").manual_seed({seed}), device="cpu"'
    if x.dtype == torch.bool:
        return f"(torch.rand({shape}, {drawn}) < 0.5).to(torch.get_default_device())"
    if x.is_floating_point() or x.is_complex():
        return f"torch.randn({shape}, {drawn}).to(torch.get_default_device(), {dtype})"
    low, high = int(flat.min()), int(flat.max()) + 1
    return f"torch.randint({low}, {high}, {shape}, {drawn}).to(torch.get_default_device(), {dtype})"
