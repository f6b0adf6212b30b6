"""A page of shared memory per rank that its host agent can read when the rank itself cannot answer.

A rank in a long C call, stopped by a signal or dead still shows where its code was and which operation it had entered
last. The rank writes (a fraction of a microsecond), the agent reads; there is one writer per page and a torn read costs
one wrong number in a sentence, so there is no lock.
"""

from __future__ import annotations

import marshal
import mmap
import struct
from typing import Any

from kit.trace.facts import Operation, Place, Region

# name, match, ranks, the first tensor's (role, shape, dtype) or None, peer, tag, root: as in Operation
Note = tuple[str, str, tuple[int, ...], tuple[Any, tuple[int, ...], str] | None, int | None, int | None, int | None]

PAGE = 4096
_HEADER = struct.Struct("<qqH")  # line, operations issued, length of the text
_TEXT = 2048  # a group of some hundred ranks still fits


def create(world: int) -> mmap.mmap:
    """Anonymous shared memory for `world` ranks; must exist before the ranks are forked."""
    return mmap.mmap(-1, PAGE * world)


class Blackbox:
    """One rank's page."""

    def __init__(self, memory: mmap.mmap, rank: int) -> None:
        self._memory = memory
        self._start = rank * PAGE
        self._lines = struct.Struct("<q")

    def clear(self) -> None:
        self._memory[self._start : self._start + PAGE] = bytes(PAGE)

    def at_line(self, line: int) -> None:
        self._lines.pack_into(self._memory, self._start, line)

    def in_operation(self, line: int, index: int, note: Note) -> None:
        """Notes the operation about to run, so that it is known should it be the last. line: 0 where unknown."""
        body = marshal.dumps(note)
        length = len(body) if len(body) <= _TEXT else 0
        memory, begin = self._memory, self._start
        _HEADER.pack_into(memory, begin, line, index + 1, length)
        begin += _HEADER.size
        memory[begin : begin + length] = body[:length]

    def line(self) -> int:
        """The last line seen; 0 when none was."""
        return int(self._lines.unpack_from(self._memory, self._start)[0])

    def last_operation(self, rank: int) -> Operation | None:
        """The last operation that was noted, with what is compared between ranks (no times)."""
        line, issued, length = _HEADER.unpack_from(self._memory, self._start)
        begin = self._start + _HEADER.size
        text = bytes(self._memory[begin : begin + length])
        if not text:
            return None
        name, match, ranks, first, peer, tag, root = marshal.loads(text)
        regions = (Region(first[0], 0, 0, first[1], first[2]),) if first else ()
        place = Place("", line, "")
        return Operation(rank, issued - 1, name, "", ranks, match, place, regions, 0, 0, peer=peer, tag=tag, root=root)
