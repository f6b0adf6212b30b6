"""The operations one rank issues in one run, in order, as they come to be known."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from kit.probe.code import Code
from kit.probe.operations import POINT_TO_POINT, Draft
from kit.trace.facts import Operation, Place, Region


@dataclass(eq=False, slots=True)
class Entry:
    """One operation on the way from asked for to done. `fact()` freezes what is known by now."""

    rank: int
    index: int
    name: str
    group: str
    ranks: tuple[int, ...]
    match: str
    place: Place | None
    regions: tuple[Region, ...]
    payload: int
    issued: int
    peer: int | None
    tag: int | None
    root: int | None
    reduce: str | None
    began: int | None = None
    ended: int | None = None
    waits: list[tuple[int, int]] = field(default_factory=list)
    error: str | None = None
    keep: Any = None  # the Work handed out, until it is waited for: C++ may hold it without a Python reference

    def fact(self) -> Operation:
        return Operation(
            rank=self.rank,
            index=self.index,
            name=self.name,
            group=self.group,
            ranks=self.ranks,
            match=self.match,
            place=self.place,
            regions=self.regions,
            payload=self.payload,
            issued=self.issued,
            began=self.began,
            ended=self.ended,
            waits=tuple(self.waits),
            peer=self.peer,
            tag=self.tag,
            root=self.root,
            reduce=self.reduce,
            error=self.error,
        )


class Ledger:
    """Opens an entry for each operation; knows the order per group and per pair of ranks that makes matches."""

    def __init__(self, rank: int, code: Code, worker: int) -> None:
        self.entries: list[Entry] = []
        self._rank = rank
        self._code = code
        self._worker = worker  # ident of the thread that runs the learner's function
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def open(self, draft: Draft, group: str, ranks: tuple[int, ...]) -> Entry:
        place = self.place()
        peer = None if draft.peer is None else (ranks[draft.peer] if draft.peer >= 0 else -1)
        root = None if draft.root is None else ranks[draft.root]
        with self._lock:
            entry = Entry(
                rank=self._rank,
                index=len(self.entries),
                name=draft.name,
                group=group,
                ranks=ranks,
                match=self._match(draft.name, group, peer, draft.tag),
                place=place,
                regions=draft.regions(),
                payload=draft.payload,
                issued=time.monotonic_ns(),
                peer=peer,
                tag=draft.tag,
                root=root,
                reduce=draft.reduce,
            )
            self.entries.append(entry)
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
