"""A page of shared memory per rank, which its host can read when the rank itself cannot answer.

A rank in a long C call, stopped by a signal or dead still shows where its code was and which operation it had entered
last. The rank writes (a fraction of a microsecond), the host reads; there is one writer per page and a torn read costs
one wrong number in a sentence, so there is no lock.
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

PAGE = 4096
_LINE = struct.Struct("<q")
_POSITION = struct.Struct("<qqq")  # line, operations issued, number of the last one's match (-1: it has none)
_LENGTH = struct.Struct("<H")  # of the description
_TEXT = _POSITION.size + _LENGTH.size
_LONGEST = 2048  # of descriptions: a group of some hundred ranks still fits


def create(world: int) -> mmap.mmap:
    """Anonymous shared memory for `world` ranks; must exist before the ranks are forked."""
    return mmap.mmap(-1, PAGE * world)


class Blackbox:
    """One rank's page, for the rank itself."""

    def __init__(self, memory: mmap.mmap, rank: int) -> None:
        self._memory = memory
        self._start = rank * PAGE

    def clear(self) -> None:
        self._memory[self._start : self._start + PAGE] = bytes(PAGE)

    def at_line(self, line: int) -> None:
        _LINE.pack_into(self._memory, self._start, line)

    def in_operation(self, line: int, index: int, count: int) -> None:
        """Notes that an operation is about to run, as described last. line: 0 where unknown."""
        _POSITION.pack_into(self._memory, self._start, line, index + 1, count)

    def describe(self, operation: Description) -> None:
        """What holds for an operation and all that repeat it."""
        body = marshal.dumps(operation)
        length = len(body) if len(body) <= _LONGEST else 0
        begin = self._start + _TEXT
        _LENGTH.pack_into(self._memory, begin - _LENGTH.size, length)
        self._memory[begin : begin + length] = body[:length]


class BlackboxReader:
    """Every rank's page, for the host."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory

    def last_line(self, rank: int) -> int:
        """The last line that the rank was about to run; 0 when none was seen."""
        return int(_LINE.unpack_from(self._memory, rank * PAGE)[0])

    def last_operation(self, rank: int) -> Operation | None:
        """The last operation that the rank entered, with what is compared between ranks (no times)."""
        begin = rank * PAGE + _TEXT
        line, issued, count = _POSITION.unpack_from(self._memory, rank * PAGE)
        (length,) = _LENGTH.unpack_from(self._memory, begin - _LENGTH.size)
        if not (issued and length):
            return None
        name, key, ranks, first, peer, tag, root = marshal.loads(self._memory[begin : begin + length])
        match = key if count < 0 else f"{key}/{count}"
        regions = (Region(first[0], 0, 0, first[1], first[2]),) if first else ()
        place = Place("", line, "")
        return Operation(rank, issued - 1, name, "", ranks, match, place, regions, 0, 0, peer=peer, tag=tag, root=root)
