"""The operations one rank issues in one run, in order, as they come to be known."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from kit.probe.blackbox import Blackbox
from kit.probe.code import Code
from kit.probe.operations import OperationCall, Seen, dtype_name, payload_of, reduce_name, region
from kit.trace.facts import Operation, Place
from kit.trace.text import POINT_TO_POINT


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
    key: str  # with `count`: what its partners call the same operation
    count: int  # -1: of a receive from any source that has not met its sender
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
    waits: list[tuple[int, int]] = field(default_factory=list)  # appended to by whatever threads wait for it
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
            match=self.key if self.count < 0 else f"{self.key}/{self.count}",
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
        self._described: tuple[Any, ...] | None = None  # in the black box
        self._rank = rank
        self._code = code
        self._worker = worker  # ident of the thread that runs the learner's function
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def open(self, call: OperationCall, group: str, ranks: tuple[int, ...], frame: FrameType | None) -> Entry:
        """frame: where the operation was asked for, in the calling thread."""
        place = self._code.place(frame) if threading.get_ident() == self._worker else self.place()
        name, seen, peer, tag, root = call.name, call.seen(), call.peer, call.tag, call.root
        if peer is not None and peer >= 0:
            peer = ranks[peer]
        if root is not None:
            if not 0 <= root < len(ranks):
                raise ValueError(f"{name} names rank {root}, and {there_are(ranks)}: name one of them")
            root = ranks[root]
        with self._lock:
            key, count = self._numbered(name, group, peer, tag)
            entry = Entry(
                self._rank, len(self.entries), name, group, ranks, key, count, place, seen, call.whole,
                time.monotonic_ns(), peer, tag, root, call.reduce,
            )  # fmt: skip
            self.entries.append(entry)
        described = (
            (name, key, ranks, len(seen), seen[0][0], seen[0][3:], peer, tag, root) if seen else (name, key, ranks)
        )
        if described != self._described:
            self._described = described
            self._blackbox.describe((name, key, ranks, _alone(seen), peer, tag, root))
        self._blackbox.in_operation(0 if place is None else place.line, entry.index, count)
        return entry

    def found_source(self, entry: Entry, source: int) -> None:
        """A receive from any source has met its sender."""
        with self._lock:
            entry.peer = source
            entry.key, entry.count = self._numbered("recv", entry.group, source, entry.tag)

    def facts(self, start: int = 0) -> tuple[Operation, ...]:
        with self._lock:
            return tuple(entry.fact() for entry in self.entries[start:])

    def place(self) -> Place | None:
        """The learner's line that the calling thread (or else the worker) is in."""
        frame = sys._getframe(1) if threading.get_ident() == self._worker else sys._current_frames().get(self._worker)
        return self._code.place(frame)

    def _numbered(self, name: str, group: str, peer: int | None, tag: int | None) -> tuple[str, int]:
        """The n-th collective of a group, or message of a pair, is the n-th on its other ranks too."""
        if name not in POINT_TO_POINT:
            counted = key = f"{group}/c"
        elif peer == -1:
            return f"{group}/p/?>{self._rank}/{tag}", -1
        else:
            pair = f"{self._rank}>{peer}" if name == "send" else f"{peer}>{self._rank}"
            key = f"{group}/p/{pair}/{tag}"
            counted = name + key
        count = self._counts.get(counted, 0)
        self._counts[counted] = count + 1
        return key, count


def there_are(ranks: tuple[int, ...]) -> str:
    """The members of a group: 'the ranks here are 0 to 3'."""
    known = f"{ranks[0]} to {ranks[-1]}" if list(ranks) == list(range(len(ranks))) else ", ".join(map(str, ranks))
    return f"the {'ranks here are' if len(ranks) > 1 else 'only rank here is'} {known if len(ranks) > 1 else ranks[0]}"


def _alone(seen: Sequence[Seen]) -> tuple[Any, tuple[int, ...], str] | None:
    """(role, shape, dtype) of the first tensor that is not one of a list, for which a black box has no room."""
    roles = [one[0] for one in seen]
    single = next((one for one in seen if roles.count(one[0]) == 1), None)
    return None if single is None else (single[0], tuple(single[3]), dtype_name(single[4]))


def caller(depth: int) -> FrameType | None:
    """The frame `depth` above that of who asks; None where C++ has called Python, as autograd's threads of a GPU do."""
    try:
        return sys._getframe(depth + 1)
    except ValueError:
        return None


def wait_began(entry: Entry, asking: FrameType | None) -> int:
    """When a wait that begins now really began: a blocking call of torch.distributed waits from its issue on."""
    blocking = asking is not None and asking.f_code.co_filename.endswith("distributed_c10d.py")
    return entry.issued if blocking else time.monotonic_ns()
