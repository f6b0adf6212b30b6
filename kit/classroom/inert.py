"""Values as bytes that nothing executes: numbers, text, tensors, and lists, tuples and dicts of them.

What a rank gives back is written by code of a learner's, so it is read as data alone: sizes are bounded before
anything is made, a tensor's subclass is a tensor, and any other object is its type's name.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from typing import Any

MOST = 512_000_000  # bytes of one value
DEEPEST, WIDEST = 40, 1_000_000  # nesting, and values in all
_HEAD = struct.Struct(">Q")


class Refused(ValueError):
    """Bytes that are no value, or one that is too large; the text is a sentence."""


@dataclass(frozen=True)
class Opaque:
    """An object that stayed where it was."""

    name: str

    def __repr__(self) -> str:
        return f"an object of the type {self.name}"


def encode(value: Any) -> bytes:
    """The value as bytes. One tensor that stands in several places is one tensor again."""
    import torch

    tensors: list[Any] = []
    places: dict[int, int] = {}

    def node(value: Any, depth: int) -> Any:
        if depth > DEEPEST:
            return ["o", "something nested too deeply"]
        match value:
            case None | bool() | str():
                return value
            case int():
                return ["i", hex(value)]
            case float():
                return ["f", value.hex()]
            case torch.Tensor() if value.layout == torch.strided and value.device.type != "meta":
                if id(value) not in places:
                    places[id(value)] = len(tensors)
                    tensors.append(value)
                return ["T", places[id(value)]]
            case list() | tuple():
                return ["l" if isinstance(value, list) else "t", [node(each, depth + 1) for each in value]]
            case dict():
                return ["d", [[node(key, depth + 1), node(each, depth + 1)] for key, each in value.items()]]
        return ["o", type(value).__name__]

    root = node(value, 0)
    table, parts = [], []
    for tensor in tensors:
        # a copy: memory that numpy has once looked at cannot be resized any more
        plain = tensor.detach().cpu().reshape(-1).clone(memory_format=torch.contiguous_format)
        table.append([str(tensor.dtype).removeprefix("torch."), list(tensor.shape), tensor.requires_grad])
        parts.append(plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b"")
    text = json.dumps([root, table]).encode()
    return b"".join([_HEAD.pack(len(text)), text, *parts])


def decode(data: bytes) -> Any:
    """The value. Raises Refused for bytes that `encode` did not write."""
    try:
        return _decoded(data)
    except Refused:
        raise
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, struct.error) as problem:
        raise Refused("what came back is no value that a rank can return") from problem
    except (RecursionError, MemoryError, OverflowError) as problem:
        raise Refused("what came back is too large or nested too deeply") from problem


def _decoded(data: bytes) -> Any:
    if len(data) > MOST:
        raise Refused(f"what came back has {len(data) / 1e6:,.0f} MB, and at most {MOST // 1_000_000} are read")
    (length,) = _HEAD.unpack_from(data)
    root, table = json.loads(data[_HEAD.size : _HEAD.size + length])
    tensors = _tensors(table, memoryview(data)[_HEAD.size + length :])
    left = WIDEST

    def value(node: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or depth > DEEPEST + 1:
            raise Refused("what came back is too large or nested too deeply")
        if node is None or isinstance(node, bool | str):
            return node
        kind, inner = node
        match kind:
            case "i":
                return int(inner, 16)
            case "f":
                return float.fromhex(inner)
            case "T":
                return tensors[inner]
            case "l":
                return [value(each, depth + 1) for each in inner]
            case "t":
                return tuple(value(each, depth + 1) for each in inner)
            case "d":
                return {value(key, depth + 1): value(each, depth + 1) for key, each in inner}
            case "o":
                return Opaque(str(inner)[:80])
        raise Refused("what came back is no value that a rank can return")

    return value(root, 0)


def _tensors(table: Any, data: memoryview) -> list[Any]:
    import torch

    found, offset = [], 0
    for name, shape, requires_grad in table:
        dtype = getattr(torch, name)
        if not isinstance(dtype, torch.dtype) or any(type(size) is not int or size < 0 for size in shape):
            raise Refused("what came back is no value that a rank can return")
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes > len(data) - offset:
            raise Refused("a tensor that came back is said to be larger than it is")
        raw = bytearray(data[offset : offset + nbytes])
        offset += nbytes
        tensor = torch.frombuffer(raw, dtype=dtype).reshape(shape) if nbytes else torch.empty(shape, dtype=dtype)
        found.append(tensor.requires_grad_(bool(requires_grad) and dtype.is_floating_point))
    return found
