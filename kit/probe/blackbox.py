"""A page of shared memory per rank that its host agent can read when the rank itself cannot answer.

A rank in a long C call, stopped by a signal or dead still shows where its code was and which operation it had entered
last. The rank writes (a fraction of a microsecond), the agent reads; there is one writer per page and a torn read costs
one wrong number in a sentence, so there is no lock.
"""

from __future__ import annotations

import ast
import mmap
import struct
from typing import TYPE_CHECKING

from kit.trace.facts import Operation, Place, Region

if TYPE_CHECKING:
    from kit.probe.ledger import Entry

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

    def in_operation(self, operation: Operation | Entry) -> None:
        """Notes the operation about to run, so that it is known should it be the last."""
        region = operation.regions[0] if operation.regions else None
        body = repr(
            (
                operation.name,
                operation.match,
                operation.ranks,
                (region.role, region.shape, region.dtype) if region else None,
                operation.peer,
                operation.tag,
                operation.root,
                operation.reduce,
            )
        ).encode()
        if len(body) > _TEXT:
            body = b""
        line = operation.place.line if operation.place else 0
        _HEADER.pack_into(self._memory, self._start, line, operation.index + 1, len(body))
        begin = self._start + _HEADER.size
        self._memory[begin : begin + len(body)] = body

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
        name, match, ranks, region, peer, tag, root, reduce = ast.literal_eval(text.decode())
        regions = (Region(region[0], 0, 0, region[1], region[2]),) if region else ()
        place = Place("", line, "")
        return Operation(
            rank, issued - 1, name, "", ranks, match, place, regions, 0, 0, peer=peer, tag=tag, root=root, reduce=reduce
        )
