"""Puts a trace together from what the ranks post, fact by fact."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kit.probe.delta import Decoder
from kit.probe.own import KIT, is_own_file, source_lines
from kit.protocol.messages import AtStop, Operated, Operations, Posted, Report
from kit.resources import reference_label
from kit.trace.facts import (
    Account,
    Meta,
    Mode,
    Operation,
    Output,
    Pass,
    Place,
    Position,
    RankTrace,
    Source,
    Stop,
    Stretch,
)
from kit.trace.match import EXCHANGES
from kit.trace.text import canonical
from kit.trace.trace import Trace

if TYPE_CHECKING:
    from kit.probe.shipping import Package


@dataclass
class _RankRecord:
    stops: list[Stop] = field(default_factory=list)
    operations: dict[int, Operation] = field(default_factory=dict)
    active: list[tuple[int, int]] = field(default_factory=list)
    output: list[Output] = field(default_factory=list)
    passes: tuple[Pass, ...] = ()
    account: Account | None = None
    stretches: tuple[Stretch, ...] = ()
    clock_error: int = 0
    decoder: Decoder = field(default_factory=Decoder)
    frozen: RankTrace | None = None


class Recorder:
    """Grows by messages and positions; `trace()` freezes what is known by now. Not locked: its owner is."""

    def __init__(self, package: Package, mode: Mode, meta: dict[str, Any]) -> None:
        self.world: int = meta["world"]
        self._ranks = [_RankRecord() for _ in range(self.world)]
        self._positions: list[Position] = []
        self._sources = {file: Source(file, label(file), lines) for file, lines in package.sources.items()}
        self._meta = Meta(function=package.name, mode=mode, **meta)
        self._stepped = package.root_file if mode == "step" and package.root_file.startswith(KIT) else ""
        self._see(package.root_file)
        self._trace: Trace | None = None

    def hear(self, message: object) -> None:
        """Takes in the facts of a message; most hold none."""
        match message:
            case AtStop(rank=rank, stop=stop):
                record = self._grown(rank)
                frames = record.decoder.decode(stop.frames, message.facts)
                record.stops.append(replace(stop, frames=frames))
                record.active.append(message.active)
                record.output.extend(stop.output)
                for frame in frames:
                    self._see(frame.place.file)
            case Posted(rank=rank, operation=operation) | Operated(rank=rank, operation=operation):
                self._note_operations(self._grown(rank), (operation,))
            case Report(rank=rank, operations=operations):
                self._note_operations(self._grown(rank), operations)
            case Operations(rank=rank, operations=operations):
                record = self._grown(rank)
                self._note_operations(record, operations)
                record.passes, record.account = message.passes, message.account
                record.stretches, record.clock_error = message.stretches, message.clock_error
            case _:
                return

    def _grown(self, rank: int) -> _RankRecord:
        """A rank's record, about to grow."""
        record = self._ranks[rank]
        record.frozen = self._trace = None
        return record

    def _note_operations(self, record: _RankRecord, operations: Iterable[Operation]) -> None:
        for operation in operations:
            record.operations[operation.index] = operation
            self._see_place(operation.place)

    def add(self, position: Position) -> int:
        """Appends a position and returns its index."""
        self._positions.append(position)
        self._trace = None
        return len(self._positions) - 1

    def note(self, text: str) -> None:
        if text not in self._meta.notes:
            self._meta = replace(self._meta, notes=(*self._meta.notes, text))
            self._trace = None

    def parts(self, operation: Operation) -> list[Operation]:
        """All ranks' parts, by rank, of one known from a black box: so with a line and, but where pieces are
        exchanged, the first tensor alone.
        """
        told = {operation.rank: operation}
        for record in self._ranks:
            for op in record.operations.values():
                if op.match == operation.match and op.rank not in told:
                    place = op.place and replace(op.place, file="")
                    regions = op.regions if canonical(op.name) in EXCHANGES else op.regions[:1]
                    told[op.rank] = replace(op, regions=regions, place=place, reduce=None)
        return [told[rank] for rank in sorted(told)]

    @property
    def positions(self) -> list[Position]:
        return self._positions

    def trace(self) -> Trace:
        if self._trace is None:
            ranks = tuple(self._freeze(rank, record) for rank, record in enumerate(self._ranks))
            self._trace = Trace(self._meta, ranks, tuple(self._positions), tuple(self._sources.values()))
        return self._trace

    def _freeze(self, rank: int, record: _RankRecord) -> RankTrace:
        if record.frozen is None:
            operations = tuple(record.operations[i] for i in sorted(record.operations))
            record.frozen = RankTrace(
                rank,
                tuple(record.stops),
                operations,
                tuple(record.active),
                tuple(record.output),
                record.passes,
                record.account,
                record.stretches,
                record.clock_error,
            )
        return record.frozen

    def _see_place(self, place: Place | None) -> None:
        if place is not None:
            self._see(place.file)

    def _see(self, file: str) -> None:
        """References, whatever else of the kit is stepped, and modules that ranks imported are read from disk; what
        came by value is known already.
        """
        if not file or file in self._sources:
            return
        if file == self._stepped or reference_label(file) is not None or is_own_file(file):
            self._sources[file] = Source(file, label(file), source_lines(file))


def label(file: str) -> str:
    """What a person calls a file: 'your cell', 'kit/topics/zero/reference/flat.py', a path from the current folder."""
    if "ipykernel_" in file or file.startswith("<"):
        return "your cell"
    reference = reference_label(file)
    if reference is not None:
        return reference
    if file.startswith(KIT):
        return f"kit/{file.removeprefix(KIT)}"
    try:
        shorter = os.path.relpath(file)
    except OSError:  # the folder that the kernel runs in was deleted
        return file
    return file if shorter.startswith("..") else shorter
