"""What a function returned, rank by rank, short enough to read: 'rank 2: [111, 111]'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SHOWN = 16  # elements of a tensor that are written out


def format_results(results: Sequence[Any]) -> list[str]:
    """One line per rank, or nothing when no rank returned anything."""
    if all(result is None for result in results):
        return []
    return [f"rank {rank}: {format_value(result)}" for rank, result in enumerate(results)]


def format_value(value: Any) -> str:
    """A returned value as a person reads it: numbers without trailing zeros, large tensors by shape and dtype."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(format_value(item) for item in value)}]"
    if hasattr(value, "numel") and hasattr(value, "tolist"):
        return _tensor(value)
    return repr(value)


def _tensor(tensor: Any) -> str:
    if tensor.numel() <= SHOWN:
        return format_value(tensor.tolist())
    return f"{' x '.join(map(str, tensor.shape))} of {str(tensor.dtype).removeprefix('torch.')}"
