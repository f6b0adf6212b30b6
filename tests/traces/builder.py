"""A pencil for hand-made traces: what a rank does is written down, times follow.

Examples, tests and views draw with it. One motion is: `run` the ranks that move, then `position`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from kit.trace.facts import (
    Failure,
    Frame,
    Memory,
    Meta,
    Mode,
    Operation,
    Output,
    Place,
    Position,
    RankState,
    RankTrace,
    Region,
    Source,
    Stop,
    TensorFact,
)
from kit.trace.trace import Trace
from kit.trace.traffic import item_size

MICROSECOND = 1_000
THINKING = 400_000_000  # what a person takes between two motions of an example, in nanoseconds


def tensor(name: str, values: np.ndarray, storage: int, offset: int = 0) -> TensorFact:
    """A small tensor as the probe would capture it: a frozen copy of the values."""
    copy = np.array(values)
    copy.setflags(write=False)
    return TensorFact(name, copy.shape, str(copy.dtype), "cpu", copy, None, storage, offset)


class TraceBuilder:
    """A trace in the making, over `world` ranks that are members of group '0'."""

    def __init__(self, function: str, lines: Sequence[str], world: int, mode: Mode, arguments: str = "") -> None:
        self.meta = Meta(function, mode, world, "gloo", ("cpu",) * world, arguments=arguments, notes=("drawn by hand",))
        self.source = Source(f"<{function}>", "your cell", tuple(lines))
        self.world = world
        self.now = 0  # when the present motion began
        self.at = [0] * world  # where each rank's clock stands
        self.stops: list[list[Stop]] = [[] for _ in range(world)]
        self.operations: list[list[Operation]] = [[] for _ in range(world)]
        self.active: list[list[tuple[int, int]]] = [[] for _ in range(world)]
        self.states = [RankState(rank, "paused") for rank in range(world)]
        self.positions: list[Position] = []

    def place(self, line: int) -> Place:
        return Place(self.source.file, line, self.meta.function)

    def run(self, rank: int, microseconds: float) -> None:
        """The rank's code works for a while from where its clock stands."""
        start = self.at[rank]
        self.at[rank] = start + round(microseconds * MICROSECOND)
        self.active[rank].append((start, self.at[rank]))

    def stop(
        self,
        rank: int,
        line: int,
        tensors: Sequence[TensorFact] = (),
        scalars: Mapping[str, object] | None = None,
        output: Sequence[Output] = (),
        about_to: str | None = None,
    ) -> None:
        """The rank pauses before a line."""
        shown = tuple((name, repr(value)) for name, value in (scalars or {}).items())
        held = sum(prod(fact.shape) * item_size(fact.dtype) for fact in tensors)
        memory = Memory(60_000_000 + held, 60_000_000 + held, "resident set")
        frame = Frame(self.place(line), tuple(tensors), shown)
        stops, issued = self.stops[rank], len(self.operations[rank])
        stops.append(Stop(rank, len(stops), self.at[rank], (frame,), memory, tuple(output), issued, about_to))
        self.states[rank] = RankState(rank, "paused", self.place(line), about_to, stop=len(stops) - 1)

    def issue(
        self,
        rank: int,
        name: str,
        match: str,
        line: int,
        regions: Sequence[Region],
        peer: int | None = None,
        root: int | None = None,
        reduce: str | None = None,
    ) -> Operation:
        """The rank posts an operation now; it has neither begun nor ended."""
        size = sum(prod(region.shape) * item_size(region.dtype) for region in regions if region.role != "out")
        size = size or sum(prod(region.shape) * item_size(region.dtype) for region in regions)
        operation = Operation(
            rank=rank,
            index=len(self.operations[rank]),
            name=name,
            group="0",
            ranks=tuple(range(self.world)),
            match=match,
            place=self.place(line),
            regions=tuple(regions),
            payload=size,
            issued=self.at[rank],
            peer=peer,
            tag=0 if peer is not None else None,
            root=root,
            reduce=reduce,
        )
        self.operations[rank].append(operation)
        return operation

    def move(self, match: str, microseconds: float) -> int:
        """All parts of an operation are there: it begins at the last arrival. Returns its end."""
        parts = [op for one in self.operations for op in one if op.match == match]
        began = max(op.issued for op in parts)
        ended = began + round(microseconds * MICROSECOND)
        for op in parts:
            self.operations[op.rank][op.index] = replace(op, began=began, ended=ended)
        return ended

    def wait(self, operation: Operation) -> None:
        """The rank stands in wait for its operation until that has ended."""
        op = self.operations[operation.rank][operation.index]
        assert op.ended is not None, "move the operation first, or say with `waits` that it does not end"
        if op.ended > self.at[op.rank]:
            interval = (self.at[op.rank], op.ended)
            self.operations[op.rank][op.index] = replace(op, waits=(*op.waits, interval))
            self.active[op.rank].append(interval)
            self.at[op.rank] = op.ended

    def waits(self, rank: int, line: int, operation: str, waiting_for: Sequence[int]) -> None:
        """The rank stands in wait for an operation that does not end in this picture."""
        self.states[rank] = RankState(
            rank,
            "waiting",
            self.place(line),
            operation,
            tuple(waiting_for),
            since=self.at[rank],
            stop=len(self.stops[rank]) - 1,
        )

    def finish(self, rank: int) -> None:
        self.states[rank] = RankState(rank, "finished", stop=len(self.stops[rank]) - 1)

    def fail(self, rank: int, line: int, kind: str, message: str) -> None:
        text = f'  File "{self.source.file}", line {line}, in {self.meta.function}\n{kind}: {message}'
        failure = Failure(kind, message, text, self.place(line))
        self.states[rank] = RankState(rank, "failed", self.place(line), error=failure, stop=len(self.stops[rank]) - 1)

    def position(
        self, motion: str, held: Sequence[int] = (), verdict: str | None = None, thinking: int = THINKING
    ) -> None:
        """The motion has returned; a person thinks, then all clocks stand where the next motion begins."""
        seen = max(self.at)
        states = []
        for state in self.states:
            since = state.since if state.since is not None else self.at[state.rank]
            operations = len(self.operations[state.rank])
            held_now = state.rank in held and state.phase == "paused"
            states.append(replace(state, since=since, now=max(seen, since), operations=operations, held=held_now))
        self.positions.append(Position(motion, tuple(states), verdict))
        if self.meta.mode == "step":
            self.now = seen + thinking
            self.at = [self.now] * self.world

    def look(self, nanoseconds: int) -> None:
        """Let the last position have been seen that much later: waits have lasted longer, nothing else has changed."""
        last = self.positions[-1]
        states = tuple(replace(s, now=(s.now or 0) + nanoseconds) for s in last.states)
        self.positions[-1] = replace(last, states=states)

    def trace(self) -> Trace:
        ranks = tuple(
            RankTrace(rank, tuple(self.stops[rank]), tuple(self.operations[rank]), tuple(self.active[rank]))
            for rank in range(self.world)
        )
        return Trace(self.meta, ranks, tuple(self.positions), (self.source,))
