"""The operations one rank issues in one run, in order, as they come to be known."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from kit.probe.blackbox import Blackbox
from kit.probe.code import Code
from kit.probe.operations import POINT_TO_POINT, Draft, Seen, dtype_name, payload_of, reduce_name, region
from kit.trace.facts import Operation, Place


@dataclass(eq=False, slots=True)
class Entry:
    """One operation on the way from asked for to done. `fact()` freezes what is known by now.

    Made at every operation of a loop that is recorded at full speed: what can be worked out later is.
    """

    rank: int
    index: int
    name: str
    group: str
    ranks: tuple[int, ...]
    match: str
    place: Place | None
    seen: list[Seen]
    whole: str
    issued: int
    peer: int | None
    tag: int | None
    root: int | None
    reduce: Any
    began: int | None = None
    ended: int | None = None
    waits: list[tuple[int, int]] = field(default_factory=list)
    error: str | None = None
    keep: Any = None  # the Work handed out, until it is waited for: C++ may hold it without a Python reference
    future: Any = None  # the future handed out, until it has come

    def fact(self) -> Operation:
        return Operation(
            rank=self.rank,
            index=self.index,
            name=self.name,
            group=self.group,
            ranks=self.ranks,
            match=self.match,
            place=self.place,
            regions=tuple(map(region, self.seen)),
            payload=payload_of(self.seen, self.whole),
            issued=self.issued,
            began=self.began,
            ended=self.ended,
            waits=tuple(self.waits),
            peer=self.peer,
            tag=self.tag,
            root=self.root,
            reduce=None if self.reduce is None else reduce_name(self.reduce),
            error=self.error,
        )


class Ledger:
    """Opens an entry for each operation, and notes it in the black box; knows the order that makes matches."""

    def __init__(self, rank: int, code: Code, worker: int, blackbox: Blackbox) -> None:
        self.entries: list[Entry] = []
        self._blackbox = blackbox
        self._rank = rank
        self._code = code
        self._worker = worker  # ident of the thread that runs the learner's function
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def open(self, draft: Draft, group: str, ranks: tuple[int, ...], frame: FrameType | None) -> Entry:
        """frame: where the operation was asked for, in the calling thread."""
        place = self._code.place(frame) if threading.get_ident() == self._worker else self.place()
        name, seen, peer, tag, root = draft.name, draft.seen(), draft.peer, draft.tag, draft.root
        if peer is not None and peer >= 0:
            peer = ranks[peer]
        if root is not None:
            root = ranks[root]
        whole, reduce = draft.whole, draft.reduce
        with self._lock:
            index = len(self.entries)
            match = self._match(name, group, peer, tag)
            issued = time.monotonic_ns()
            entry = Entry(
                self._rank, index, name, group, ranks, match, place, seen, whole, issued, peer, tag, root, reduce
            )
            self.entries.append(entry)
        first = (seen[0][0], tuple(seen[0][3]), dtype_name(seen[0][4])) if seen else None
        line = 0 if place is None else place.line
        self._blackbox.in_operation(line, index, (name, match, ranks, first, peer, tag, root))
        return entry

    def found_source(self, entry: Entry, source: int) -> None:
        """A receive from any source has met its sender."""
        with self._lock:
            entry.peer = source
            entry.match = self._match("recv", entry.group, source, entry.tag)

    def facts(self, start: int = 0) -> tuple[Operation, ...]:
        with self._lock:
            return tuple(entry.fact() for entry in self.entries[start:])

    def place(self) -> Place | None:
        """The learner's line that the calling thread (or else the worker) is in."""
        frame: FrameType | None
        if threading.get_ident() == self._worker:
            frame = sys._getframe(1)
        else:
            frame = sys._current_frames().get(self._worker)
        return self._code.place(frame)

    def _match(self, name: str, group: str, peer: int | None, tag: int | None) -> str:
        if name in POINT_TO_POINT:
            if peer == -1:
                return f"{group}/p/?>{self._rank}/{tag}"
            pair = f"{self._rank}>{peer}" if name == "send" else f"{peer}>{self._rank}"
            key = f"{group}/p/{pair}/{tag}"
            count = self._counts[name + key]
            self._counts[name + key] += 1
            return f"{key}/{count}"
        key = f"{group}/c"
        count = self._counts[key]
        self._counts[key] += 1
        return f"{key}/{count}"


def wait_began(entry: Entry, caller: FrameType) -> int:
    """When a wait that begins now really began: a blocking call of torch.distributed waits from its issue on."""
    blocking = caller.f_code.co_filename.endswith("distributed_c10d.py")
    return entry.issued if blocking else time.monotonic_ns()
