"""What happened on the ranks, as frozen facts, and the questions a trace of them answers.

Everything Lockstep shows is a pure function of these records, so they are plain data: strings, integers, numpy arrays.
Times are nanoseconds of the host's monotonic clock, sizes are bytes, ranks are global rank numbers. No torch here: a
kernel, a view or a test can hold a trace without importing it. Modules that work an answer out stand below this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy.typing as npt

from kit.trace import chrome, io, match, memory, timeline
from kit.trace.overlap import Overlap, measure
from kit.trace.text import is_message, sentence, sentences
from kit.trace.traffic import Traffic, nbytes, received, sent

Phase = Literal["paused", "running", "waiting", "finished", "failed", "stopped", "dead"]
ENDED_PHASES = frozenset[Phase]({"finished", "failed", "dead"})  # phases that no motion changes
Mode = Literal["step", "record", "predicted"]


@dataclass(frozen=True, slots=True)
class Source:
    """The text of one file that was stepped, as the learner wrote it."""

    file: str  # the code object's co_filename: the key that stops and operations use
    label: str  # what a person reads: 'your cell', 'kit/topics/zero/reference/flat.py'
    lines: tuple[str, ...]  # the whole file, without line ends; line 1 is lines[0]


@dataclass(frozen=True, slots=True)
class Place:
    """A line of code: where a rank stands, or where an operation was called."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Summary:
    """A faithful digest of a tensor too large to copy: over its finite elements, NaN and infinities counted apart."""

    minimum: float
    maximum: float
    mean: float
    std: float
    nans: int
    infs: int
    head: tuple[float, ...]  # the first few elements, in storage order


@dataclass(frozen=True, slots=True)
class TensorFact:
    """One tensor in a rank's scope at one stop."""

    name: str  # as the learner would write it: 'x', 'chunks[2]', 'model.0.weight', 'model.0.weight.grad'
    shape: tuple[int, ...]
    dtype: str  # 'float32', 'bfloat16', ...
    device: str  # 'cpu', 'cuda:0'
    values: npt.NDArray[Any] | None  # a copy, shape as above, when small (bfloat16 and float16 as float32); else None
    summary: Summary | None  # when large
    storage: int  # equal numbers on one rank mean shared memory: views and aliases
    offset: int  # elements from the start of the storage
    requires_grad: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """One function of the learner's call stack: where it stands and what it holds."""

    place: Place
    tensors: tuple[TensorFact, ...]
    scalars: tuple[tuple[str, str], ...]  # (name, short repr): numbers, strings, booleans, small tuples


@dataclass(frozen=True, slots=True)
class Output:
    """What a rank printed or was warned of."""

    stream: Literal["stdout", "stderr", "warning"]
    text: str


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes a rank holds, by the method named ('resident set', 'cuda allocator')."""

    now: int
    peak: int
    method: str


@dataclass(frozen=True, slots=True)
class Stop:
    """A rank standing still: before a line, before an operation, or at the end (frames: what was last in scope)."""

    rank: int
    index: int  # 0, 1, 2, ... on this rank
    time: int
    frames: tuple[Frame, ...]  # outermost first; the last is where the rank stands
    memory: Memory
    output: tuple[Output, ...] = ()  # printed since the stop before
    operations: int = 0  # how many operations this rank had issued by now
    about_to: str | None = None  # the operation it is about to issue, when it stands before one: 'all_reduce'
    truncated: bool = False  # the capture budget was spent: lines go on, tensors are left out


@dataclass(frozen=True, slots=True)
class Region:
    """The memory an operation reads or writes, in the terms of TensorFact."""

    role: Literal["in", "out", "inout"]
    storage: int
    offset: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One rank's part in one communication.

    `payload` is the size of the tensor handed in (the whole buffer S of the formulas for collectives). `match` is the
    same text on every participant of the same communication ('0/c/3': group 0, its third collective; '0/p/0>1/0/2':
    the second message from 0 to 1 with tag 0).
    """

    rank: int
    index: int  # order of issue on this rank, from 0
    name: str  # all_reduce, broadcast, send, recv, barrier, ... : torch.distributed's public names
    group: str
    ranks: tuple[int, ...]  # members of the group, global ranks in group order
    match: str
    place: Place | None
    regions: tuple[Region, ...]
    payload: int
    issued: int
    began: int | None = None  # the last participant had arrived and data began to move
    ended: int | None = None
    waits: tuple[tuple[int, int], ...] = ()  # when the rank's own code stood in wait for it: (from, to)
    peer: int | None = None  # send, recv: the other side
    tag: int | None = None
    root: int | None = None  # broadcast, reduce, gather, scatter
    reduce: str | None = None  # SUM, AVG, ...
    error: str | None = None

    def until(self, moment: int) -> Operation:
        """The operation as it was at a moment: what came later has not happened."""
        if self.ended is not None and self.ended <= moment and all(end <= moment for _, end in self.waits):
            return self
        return replace(
            self,
            began=self.began if self.began is not None and self.began <= moment else None,
            ended=self.ended if self.ended is not None and self.ended <= moment else None,
            waits=tuple((start, end) for start, end in self.waits if end <= moment),
            error=self.error if self.ended is None or self.ended <= moment else None,
        )


@dataclass(frozen=True, slots=True)
class Message:
    """A tensor on its way from one rank to another."""

    source: int
    destination: int
    tag: int
    nbytes: int
    match: str
    sent: Operation
    received: Operation | None  # None while the destination has not posted its receive


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a rank failed, in the learner's own lines."""

    kind: str  # the exception's class name
    message: str
    traceback: str
    place: Place | None


@dataclass(frozen=True, slots=True)
class RankState:
    """A rank as one sees it from outside. `str()` is the sentence a person reads."""

    rank: int
    phase: Phase
    place: Place | None = None
    operation: str | None = None  # waiting in it, or about to issue it: 'recv from rank 3'
    waiting_for: tuple[int, ...] = ()
    since: int | None = None  # of the phase
    now: int | None = None  # when this was seen; since <= now
    error: Failure | None = None
    stop: int = -1  # index of its last stop; -1 before the first
    operations: int = 0  # how many operations it had issued when this was seen
    held: bool = False  # left out of the last motion by the person
    detail: str = ""  # 'killed by SIGKILL', 'stopped by SIGSTOP'

    def __str__(self) -> str:
        return sentence(self)


@dataclass(frozen=True, slots=True)
class Position:
    """One motion's outcome: where all ranks were when it returned."""

    motion: str  # 'start', 'step', 'over', 'into', 'out', 'to_collective', 'to_line 9', 'finish'
    states: tuple[RankState, ...]
    verdict: str | None = None  # 'Deadlock: ranks 0, 2, 3 wait in all_reduce (line 6); rank 1 finished without it.'

    def __str__(self) -> str:
        return sentences(self)

    def __getitem__(self, rank: int) -> RankState:
        return self.states[rank]

    def __iter__(self) -> Iterator[RankState]:
        return iter(self.states)

    def __len__(self) -> int:
        return len(self.states)


@dataclass(frozen=True, slots=True)
class MemorySample:
    """What a rank held at one moment, in bytes by kind of memory. A storage counts once, whoever looks at it."""

    time: int
    label: str  # what had just happened: 'addmm', 'all_reduce issued', 'backward begins'
    parameters: int = 0
    gradients: int = 0
    optimizer_state: int = 0
    activations: int = 0  # what the forward pass made, and all else that the backward pass reads
    buffers: int = 0  # of communication: buckets, gathered layers, what else is handed to collectives
    other: int = 0
    allocator: int = 0  # on a GPU: what its allocator had given out beyond all these


@dataclass(frozen=True, slots=True)
class Account:
    """What a rank held in the course of a run, by the method named ('live storages', 'cuda allocator')."""

    method: str
    samples: tuple[MemorySample, ...]

    def until(self, moment: int) -> Account:
        """The account as it was at a moment."""
        return replace(self, samples=tuple(sample for sample in self.samples if sample.time <= moment))


@dataclass(frozen=True, slots=True)
class Pass:
    """A stretch of a training step on one rank: 'forward', 'backward', or 'step' of the optimizer."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RankTrace:
    """Everything one rank did."""

    rank: int
    stops: tuple[Stop, ...] = ()
    operations: tuple[Operation, ...] = ()
    active: tuple[tuple[int, int], ...] = ()  # (from, to): its code was let run; between them a person was thinking
    output: tuple[Output, ...] = ()  # all it printed
    passes: tuple[Pass, ...] = ()  # where they were watched
    account: Account | None = None  # where memory was accounted for

    def until(self, state: RankState, moment: int) -> RankTrace:
        """What the rank had done when it was in a state, at a moment."""
        stops = self.stops[: state.stop + 1]
        return RankTrace(
            rank=self.rank,
            stops=stops,
            operations=tuple(op.until(moment) for op in self.operations[: state.operations]),
            active=tuple((start, min(end, moment)) for start, end in self.active if start < moment),
            output=tuple(output for stop in stops for output in stop.output),
            passes=tuple(one for one in self.passes if one.end <= moment),
            account=self.account and self.account.until(moment),
        )


@dataclass(frozen=True, slots=True)
class Meta:
    function: str
    mode: Mode
    world: int
    backend: str  # 'gloo', 'nccl'
    devices: tuple[str, ...]  # of each rank
    started: str = ""  # ISO 8601, UTC
    arguments: str = ""  # 'x: 8 x float32'
    versions: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()  # what a reader must know: a throttled link, a budget that was spent


@dataclass(frozen=True)
class Trace:
    """A run: measured on ranks or predicted by a model, the same type.

    Questions that name a rank raise ValueError for one that the trace does not have.
    """

    meta: Meta
    ranks: tuple[RankTrace, ...]
    positions: tuple[Position, ...] = ()
    sources: tuple[Source, ...] = field(default=(), repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles carry the facts alone, not what was worked out from them."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def source(self, file: str) -> Source | None:
        return next((s for s in self.sources if s.file == file), None)

    def stop(self, rank: int, position: int) -> Stop | None:
        """The stop a rank stood at, or had last passed, at a position of the record."""
        index = self.positions[position].states[rank].stop
        return self.ranks[rank].stops[index] if index >= 0 else None

    def until(self, position: int) -> Trace:
        """The trace as it was at a position (negative: counted from the end): ask it any question.

        Later stops, operations and times are gone. Raises ValueError for a position that was not recorded.
        """
        if not -len(self.positions) <= position < len(self.positions):
            raise ValueError(
                f"there is no position {position}: this trace has {len(self.positions)}, counted from 0"
                if self.positions
                else "this trace has no positions: only a stepped run has them"
            )
        index = position % len(self.positions)
        if index == len(self.positions) - 1:
            return self
        reached = self.positions[index]
        moment = self._moment(reached)
        ranks = tuple(rank.until(reached.states[rank.rank], moment) for rank in self.ranks)
        return replace(self, ranks=ranks, positions=self.positions[: index + 1])

    # ------------------------------------------------------------------------------------------ who sent what to whom

    @cached_property
    def by_match(self) -> dict[str, list[Operation]]:
        """match -> the parts of one communication, in rank order; in order of first issue. Not to be changed."""
        return match.grouped(op for rank in self.ranks for op in rank.operations)

    def bytes_sent(self, rank: int | None = None) -> Traffic:
        """Bytes that a rank (None: all ranks together) handed out: payload, algorithmic and wire, never mixed.

        Operations whose data never moved, such as a send that nobody received, count nothing.
        """
        return self._total(rank, sent)

    def bytes_received(self, rank: int | None = None) -> Traffic:
        """Bytes that a rank (None: all ranks together) took in, by kind; as `bytes_sent`."""
        return self._total(rank, received)

    def messages(self, rank: int | None = None) -> tuple[Message, ...]:
        """Every send, in order of issue, with the receive that met it; with a rank: those it sends or receives."""
        self._check(rank)
        found = []
        for entries in self.by_match.values():
            send, receive = match.send_and_receive(entries)
            if send is None or send.peer is None:
                continue
            if rank is None or rank in (send.rank, send.peer):
                size = nbytes(send.regions) if send.regions else send.payload
                found.append(Message(send.rank, send.peer, send.tag or 0, size, send.match, send, receive))
        return tuple(sorted(found, key=lambda message: (message.sent.issued, message.source, message.sent.index)))

    def collectives(self, rank: int | None = None) -> tuple[Operation, ...]:
        """Every rank's part in every operation that is not a send or a receive, rank by rank, in order of issue."""
        self._check(rank)
        ranks = self.ranks if rank is None else (self.ranks[rank],)
        return tuple(op for one in ranks for op in one.operations if not is_message(op.name))

    def unmatched(self) -> tuple[Operation, ...]:
        """Operations that still miss a participant: a send without its receive, a lonely collective."""
        return tuple(op for entries in self.by_match.values() if not match.is_complete(entries) for op in entries)

    def mismatches(self) -> tuple[str, ...]:
        """What the participants of operations disagreed on, a sentence each; empty when they agreed."""
        return match.mismatches(self)

    # ------------------------------------------------------------------------------------------ who did what when

    def spans(self) -> tuple[timeline.Span, ...]:
        """What every rank did when, in seconds from 0; a stepped run without the time its person took."""
        return self._spans

    def waiting_time(self, rank: int) -> float:
        """Seconds a rank's code stood still because another had not come yet, on the axis of `spans`.

        A wait that has not ended counts in a recorded run as far as it was seen; in a stepped run it does not count,
        since its length is the person's.
        """
        return self._time(rank, "wait")

    def exposed_communication(self, rank: int) -> float:
        """Seconds a rank's code stood in wait while data moved: communication that its own computing did not hide."""
        return self._time(rank, "communicate")

    def overlap(self, step: int = -1) -> Overlap:
        """What computing hid of a training step's communication (negative: steps are counted from the last).

        Raises ValueError for a stepped run, whose times are the person's, and for a step that the run does not have.
        """
        return measure(self, step)

    # ------------------------------------------------------------------------------------------ who held how much

    def peak_memory(self, rank: int) -> int:
        """The most bytes a rank held, by the method its stops name; 0 without stops."""
        self._check(rank)
        return max((max(stop.memory.peak, stop.memory.now) for stop in self.ranks[rank].stops), default=0)

    def holdings(self) -> memory.Holdings:
        """What every rank held over the run, by kind of memory. ValueError where nobody accounted for it."""
        return memory.holdings(self)

    # ------------------------------------------------------------------------------------------ files

    def save(self, path: str | Path) -> Path:
        """Write the trace to one file, which `Trace.load` reads back exactly."""
        return io.save(self, path)

    @staticmethod
    def load(path: str | Path) -> Trace:
        """Read a file that `save` wrote. Raises ValueError for a file of another version or a broken one."""
        return io.load(Trace, path)

    def chrome(self, path: str | Path) -> Path:
        """Write the time axis for chrome://tracing or ui.perfetto.dev: a track per rank, an arrow per message."""
        return chrome.write(self, path)

    # ------------------------------------------------------------------------------------------ worked out

    @cached_property
    def _spans(self) -> tuple[timeline.Span, ...]:
        return timeline.lay_out(self)

    def _check(self, rank: int | None) -> None:
        if rank is not None and not 0 <= rank < len(self.ranks):
            raise ValueError(f"the trace has no rank {rank}: choose one of 0 to {len(self.ranks) - 1}")

    def _total(self, rank: int | None, of: Callable[[Operation], Traffic]) -> Traffic:
        self._check(rank)
        moved = [op for entries in self.by_match.values() if match.moved(entries) for op in entries]
        return sum((of(op) for op in moved if rank is None or op.rank == rank), Traffic(0, 0.0, 0))

    def _time(self, rank: int, kind: timeline.Kind) -> float:
        self._check(rank)
        stepped = self.meta.mode == "step"
        return sum(
            span.end - span.start
            for span in self.spans()
            if span.rank == rank and span.kind == kind and span.lane == 0 and not (span.open and stepped)
        )

    def _moment(self, position: Position) -> int:
        """When a position was seen. All ranks are seen at once, so the latest time that any state knows will do."""
        known = [moment for state in position.states for moment in (state.now, state.since) if moment is not None]
        known += [self.ranks[state.rank].stops[state.stop].time for state in position.states if state.stop >= 0]
        return max(known, default=0)
