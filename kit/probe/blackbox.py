"""Some shared memory per rank, which its host can read when the rank itself cannot answer.

A rank in a long C call, stopped by a signal or dead still shows where its code was and which operations it had entered
last: one that was launched and not waited for may be what ended it. The rank writes (a fraction of a microsecond), the
host reads; there is one writer to each and a torn read costs one wrong number in a sentence, so there is no lock.
"""

from __future__ import annotations

import marshal
import mmap
import struct
from typing import Any

from kit.trace.facts import Operation, Place, Region

# name, key of its match, ranks, the first tensor's (role, shape, dtype) or None, peer, tag, root: as in Operation
Description = tuple[
    str, str, tuple[int, ...], tuple[Any, tuple[int, ...], str] | None, int | None, int | None, int | None
]

KEPT = 8  # operations
_HEAD = struct.Struct("<qq")  # line, operations issued
_LINE = struct.Struct("<q")
_SLOT = struct.Struct("<qqqq")  # of an operation: line, index + 1, number of its match (-1: it has none), description
_LENGTH = struct.Struct("<H")  # of a description
_LONGEST = 2048  # of descriptions: a group of some hundred ranks still fits
_SLOTS = _HEAD.size
_TEXTS = _SLOTS + KEPT * _SLOT.size
_TEXT = _LENGTH.size + _LONGEST
PAGE = -(-(_TEXTS + KEPT * _TEXT) // mmap.PAGESIZE) * mmap.PAGESIZE


def create(world: int) -> mmap.mmap:
    """Anonymous shared memory for `world` ranks; must exist before the ranks are forked."""
    return mmap.mmap(-1, PAGE * world)


class Blackbox:
    """One rank's page, for the rank itself."""

    def __init__(self, memory: mmap.mmap, rank: int) -> None:
        self._memory = memory
        self._start = rank * PAGE
        self._described = 0

    def clear(self) -> None:
        self._memory[self._start : self._start + PAGE] = bytes(PAGE)

    def at_line(self, line: int) -> None:
        _LINE.pack_into(self._memory, self._start, line)

    def in_operation(self, line: int, index: int, count: int) -> None:
        """Notes that an operation is about to run, as described last. line: 0 where unknown."""
        slot = self._start + _SLOTS + index % KEPT * _SLOT.size
        _SLOT.pack_into(self._memory, slot, line, index + 1, count, self._described)
        _HEAD.pack_into(self._memory, self._start, line, index + 1)

    def describe(self, operation: Description) -> None:
        """What holds for an operation and all that repeat it."""
        body = marshal.dumps(operation)
        length = len(body) if len(body) <= _LONGEST else 0
        self._described = (self._described + 1) % KEPT
        begin = self._start + _TEXTS + self._described * _TEXT
        _LENGTH.pack_into(self._memory, begin, length)
        self._memory[begin + _LENGTH.size : begin + _LENGTH.size + length] = body[:length]


class BlackboxReader:
    """Every rank's page, for the host."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory

    def last_line(self, rank: int) -> int:
        """The last line that the rank was about to run; 0 when none was seen."""
        return int(_LINE.unpack_from(self._memory, rank * PAGE)[0])

    def last_operations(self, rank: int) -> tuple[Operation, ...]:
        """The operations that the rank entered last, in order, with what is compared between ranks (no times)."""
        _, issued = _HEAD.unpack_from(self._memory, rank * PAGE)
        found = (self._operation(rank, index) for index in range(max(0, issued - KEPT), issued))
        return tuple(operation for operation in found if operation is not None)

    def _operation(self, rank: int, index: int) -> Operation | None:
        start = rank * PAGE
        line, issued, count, described = _SLOT.unpack_from(self._memory, start + _SLOTS + index % KEPT * _SLOT.size)
        begin = start + _TEXTS + described * _TEXT
        (length,) = _LENGTH.unpack_from(self._memory, begin)
        if issued != index + 1 or not length:
            return None
        begin += _LENGTH.size
        name, key, ranks, first, peer, tag, root = marshal.loads(self._memory[begin : begin + length])
        match = key if count < 0 else f"{key}/{count}"
        regions = (Region(first[0], 0, 0, first[1], first[2]),) if first else ()
        place = Place("", line, "")
        return Operation(rank, index, name, "", ranks, match, place, regions, 0, 0, peer=peer, tag=tag, root=root)
