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


def expression(value: Any, reference: Reference, seed: str = "0") -> str | None:
    """Text that evaluates to `value`, or None where there is none.

    Tensors up to 64 elements, and constant ones of any size, are written out; a larger one becomes random numbers of
    its shape and dtype, drawn with `seed` (text: '3', '3 + rank'). Layers of torch.nn begin with new weights. The text
    counts on the names torch and dist, and on torch's default device being the rank's.
    """
    if value is None or value is Ellipsis or isinstance(value, str | bytes | complex | range):
        return repr(value)
    if isinstance(value, enum.Enum):
        return f"{reference(type(value))}.{value.name}"
    if isinstance(value, int | float):
        return _number(value) if type(value) in (bool, int, float) else None
    if type(value) in (list, tuple, set, frozenset, dict):
        return _container(value, reference, seed)
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | type):
        return reference(value)
    if type(value).__module__.split(".")[0] in ("torch", "numpy"):
        return _torch(value, reference, seed)
    if dataclasses.is_dataclass(value):
        return _data_class(value, reference, seed)
    return _torch(value, reference, seed)


def is_drawn(text: str) -> bool:
    """Whether an expression draws random numbers in place of those that were too many to write."""
    return "manual_seed(" in text


def _number(value: float) -> str:
    return repr(value) if isinstance(value, int) or math.isfinite(value) else f'float("{value}")'


def _container(value: Any, reference: Reference, seed: str) -> str | None:
    if type(value) is dict:
        keys = _all(value.keys(), reference, seed)
        values = _all(value.values(), reference, seed)
        return (
            None
            if keys is None or values is None
            else f"{{{', '.join(map(': '.join, zip(keys, values, strict=True)))}}}"
        )
    parts = _all(value, reference, seed)
    if parts is None:
        return None
    inside = ", ".join(parts)
    if type(value) is tuple:
        return f"({inside},)" if len(parts) == 1 else f"({inside})"
    if type(value) is list:
        return f"[{inside}]"
    if type(value) is set and parts:
        return f"{{{inside}}}"
    return f"{type(value).__name__}({f'[{inside}]' if parts else ''})"


def _all(values: Any, reference: Reference, seed: str) -> list[str] | None:
    parts = [expression(value, reference, seed) for value in values]
    return None if any(part is None for part in parts) else [part for part in parts if part is not None]


def _data_class(value: Any, reference: Reference, seed: str) -> str | None:
    fields = [field.name for field in dataclasses.fields(value) if field.init]
    parts = _all([getattr(value, name) for name in fields], reference, seed)
    if parts is None:
        return None
    return f"{reference(type(value))}({', '.join(f'{name}={part}' for name, part in zip(fields, parts, strict=True))})"


def _torch(value: Any, reference: Reference, seed: str) -> str | None:
    import numpy as np
    import torch
    import torch.distributed as dist

    if isinstance(value, torch.nn.Parameter):
        inner = _tensor(value.data, seed)
        return f"torch.nn.Parameter({inner})" if value.requires_grad else f"torch.nn.Parameter({inner}, False)"
    if isinstance(value, torch.Tensor):
        return _tensor(value.detach(), seed) + (".requires_grad_()" if value.requires_grad else "")
    if isinstance(value, torch.nn.Module):
        return _layer(value, reference, seed)
    if isinstance(value, torch.device):
        return "torch.get_default_device()"
    if isinstance(value, torch.dtype):
        return str(value)
    if isinstance(value, torch.Size):
        return f"torch.Size({list(value)})"
    if isinstance(value, dist.ReduceOp.RedOpType):
        return f"dist.ReduceOp.{value.name}"
    if isinstance(value, np.generic):
        return expression(value.item(), reference, seed)
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return f"{_tensor(torch.from_numpy(value.copy()), seed)}.cpu().numpy()"
    return None


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


def _layer(layer: Any, reference: Reference, seed: str) -> str | None:
    """A layer of torch.nn as its constructor call, read off its repr and tried: the new one has the same shapes."""
    import torch

    kind = type(layer)
    if getattr(torch.nn, kind.__name__, None) is not kind:
        return None
    if kind in (torch.nn.Sequential, torch.nn.ModuleList):
        parts = _all(layer.children(), reference, seed)
        if parts is None:
            return None
        inside = ", ".join(parts)
        return f"torch.nn.Sequential({inside})" if kind is torch.nn.Sequential else f"torch.nn.ModuleList([{inside}])"
    text = f"torch.nn.{layer!r}"
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call):
            return None
        positional = [ast.literal_eval(node) for node in call.args]
        named = {node.arg: ast.literal_eval(node.value) for node in call.keywords if node.arg}
        again = kind(*positional, **named)
    except (SyntaxError, ValueError, TypeError):  # its repr is no call that its class takes
        return None
    shapes = {name: value.shape for name, value in layer.state_dict().items()}
    if shapes != {name: value.shape for name, value in again.state_dict().items()}:
        return None
    to = next((value.dtype for value in layer.parameters() if value.dtype != torch.float32), None)
    return text if to is None else f"{text}.to({to})"
