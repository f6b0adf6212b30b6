"""What a rank behind walls writes to the broker: data, of which every field is looked at before it counts.

What the broker writes goes the other way as `kit.protocol.wire` has it: whoever is trusted may be unpickled.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, fields
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import torch  # noqa: TC002  fields are looked at by their types

from kit.classroom import inert

LENGTH = struct.Struct(">Q")
At = tuple[str, int, str]  # a line of code: file, line, function


# -- from a rank


@dataclass(frozen=True)
class Asks:
    """For an operation. Peer and root are ranks within the group, as in `OperationCall`. asked: when, by its own clock
    in ns, which is that of the whole host.
    """

    index: int
    asked: int
    name: str
    group: str
    ranks: tuple[int, ...]
    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[tuple[str, tuple[int, ...]], ...]  # (dtype, shape); none where it works in place
    where: tuple[tuple[int, int], ...]  # storage and offset of each tensor, as it says: for sentences
    whole: str
    root: int | None
    peer: int | None
    tag: int | None
    reduce: str | None
    splits: tuple[int, ...] | None
    at: At | None


@dataclass(frozen=True)
class Wants:
    """What comes of an operation, once it is done. stands: nothing else goes on meanwhile."""

    index: int
    stands: bool
    gives_up: bool
    at: At | None


@dataclass(frozen=True)
class GaveUp:
    """It has waited in vain, as long as its code would wait."""

    index: int
    sentence: str


@dataclass(frozen=True)
class HasEnded:
    """error: kind, message, traceback, and whether that was in another file than the function's."""

    error: tuple[str, str, str, bool] | None
    at: At | None  # where it failed
    output: tuple[tuple[str, str], ...]  # (stream, text)
    result: torch.Tensor | None  # what `inert.encode` wrote, as bytes


FromRank = Asks | Wants | GaveUp | HasEnded
_KINDS: dict[str, type[FromRank]] = {kind.__name__: kind for kind in get_args(FromRank)}
_HINTS = {name: get_type_hints(kind) for name, kind in _KINDS.items()}


def sealed(letter: FromRank) -> bytes:
    data = inert.encode((type(letter).__name__, *(getattr(letter, field.name) for field in fields(letter))))
    return LENGTH.pack(len(data)) + data


def opened(data: bytes) -> FromRank:
    """Raises inert.Refused for what `sealed` did not write."""
    match inert.decode(data):
        case (str() as name, *values) if name in _KINDS and len(values) == len(_HINTS[name]):
            if all(_fits(value, hint) for value, hint in zip(values, _HINTS[name].values(), strict=True)):
                return _KINDS[name](*values)
    raise inert.Refused("what a rank wrote is no letter")


def _fits(value: Any, hint: Any) -> bool:
    kinds = get_args(hint)
    if get_origin(hint) is UnionType:
        return any(_fits(value, kind) for kind in kinds)
    if get_origin(hint) is tuple:
        if type(value) is not tuple:
            return False
        if kinds[-1] is Ellipsis:
            return all(_fits(each, kinds[0]) for each in value)
        return len(value) == len(kinds) and all(map(_fits, value, kinds))
    return type(value) is hint


def letters_in(inbox: bytearray) -> Iterator[FromRank]:
    """Those that are whole, taken out of what has come. Raises inert.Refused."""
    while len(inbox) >= LENGTH.size:
        (length,) = LENGTH.unpack_from(inbox)
        if length > inert.MOST:
            raise inert.Refused(f"a letter of {length / 1e6:,.0f} MB is not read")
        end = LENGTH.size + length
        if len(inbox) < end:
            return
        data = bytes(inbox[LENGTH.size : end])
        del inbox[:end]
        yield opened(data)


# -- to a rank, after its `Begin`


@dataclass(frozen=True)
class Given:
    """An operation that it wants is done. refused: those who were to do it do not agree."""

    index: int
    outputs: bytes = b""  # a list of tensors, as `inert.encode` writes it
    error: str | None = None
    refused: bool = False
    source: int | None = None  # of a receive from any source: whom it met, as a rank of all
