"""What a function returned, as JSON and back: numbers, text, collections of them, small tensors, our own dataclasses.

Nothing is unpickled when a recording is read. What has no place here is kept as the words that a person reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from math import prod
from typing import Any

from kit.probe.shipping import PerRank
from kit.run.results import format_value

MOST = 256  # elements of a tensor that are kept
OURS = "kit."  # modules whose dataclasses are made again
_LONGEST = 80  # characters of an argument in words


@dataclass(frozen=True)
class NotKept:
    """Stands for a result that a recording has in words alone."""

    text: str

    def __repr__(self) -> str:
        return f"{self.text} (not kept in the recording)"


def encode(value: Any) -> Any:
    """A value as what `json` writes."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [encode(item) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(item)] for key, item in value.items()]}
    if _is_tensor(value) and value.numel() <= MOST:
        shape, dtype = list(value.shape), str(value.dtype).removeprefix("torch.")
        return {"tensor": value.detach().cpu().flatten().tolist(), "shape": shape, "dtype": dtype}
    if is_dataclass(value) and type(value).__module__.startswith(OURS):
        parts = {part.name: encode(getattr(value, part.name)) for part in fields(value)}
        return {"of": f"{type(value).__module__}:{type(value).__qualname__}", "fields": parts}
    return {"words": format_value(value)}


def decode(found: Any) -> Any:
    """What `encode` was given; ValueError for what it did not write."""
    if isinstance(found, list):
        return [decode(item) for item in found]
    if not isinstance(found, dict):
        return found
    readers: dict[str, Callable[[], Any]] = {
        "tuple": lambda: tuple(decode(item) for item in found["tuple"]),
        "dict": lambda: {decode(key): decode(item) for key, item in found["dict"]},
        "tensor": lambda: _tensor(found["tensor"], tuple(found["shape"]), found["dtype"]),
        "of": lambda: _ours(found["of"], {name: decode(part) for name, part in found["fields"].items()}),
        "words": lambda: NotKept(found["words"]),
    }
    kind = next(iter(found), "")
    if kind not in readers:
        raise ValueError(f"a result is written as {str(found)[:60]!r}")
    return readers[kind]()


def arguments(args: tuple[Any, ...], kwargs: dict[str, Any], first: int | None = None) -> str:
    """What a function was called with, in words by which calls are told apart: '1000000, 10', '4 x float32 by rank'.

    first: the number of ranks, where only the first so many ran it.
    """
    named = [_short(value) for value in args] + [f"{name}={_short(value)}" for name, value in kwargs.items()]
    return ", ".join(named if first is None else [*named, f"on {first} ranks"])


def _short(value: Any) -> str:
    if isinstance(value, PerRank):
        return f"{_short(value.values[0]) if value.values else 'nothing'} by rank"
    if _is_tensor(value):
        return " x ".join([*map(str, value.shape), str(value.dtype).removeprefix("torch.")])
    if value is None or isinstance(value, bool | int | float | str | list | tuple | dict):
        return repr(value)[:_LONGEST]
    return getattr(value, "__name__", None) or type(value).__name__


def _is_tensor(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "numel")


def _tensor(numbers: list[Any], shape: tuple[int, ...], dtype: str) -> Any:
    if len(numbers) != prod(shape):
        raise ValueError(f"{len(numbers)} numbers do not fill a tensor of {shape}")
    import torch

    return torch.tensor(numbers, dtype=getattr(torch, dtype)).reshape(shape)


def _ours(name: str, parts: dict[str, Any]) -> Any:
    """A dataclass of a module of ours. Nothing else is called, whatever a file says."""
    module, _, kind = name.partition(":")
    if not module.startswith(OURS):
        raise ValueError(f"a result is of {module}, which is none of Lockstep's modules")
    try:
        made = getattr(import_module(module), kind, None)
        if isinstance(made, type) and is_dataclass(made):
            return made(**parts)
    except (ImportError, TypeError) as problem:
        raise ValueError(f"a result is of {name}, which cannot be made here: {problem}") from problem
    raise ValueError(f"a result is of {name}, which is no dataclass")
