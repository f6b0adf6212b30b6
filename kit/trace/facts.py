"""What happened on the ranks, as frozen facts.

Everything Lockstep shows is a pure function of these records, so they are plain data: strings, integers, numpy arrays.
Times are nanoseconds of the host's monotonic clock, sizes are bytes, ranks are global rank numbers. No torch here: a
kernel, a view or a test can hold a trace without importing it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from kit.trace.asking import Questions

Phase = Literal["paused", "running", "waiting", "finished", "failed", "stopped", "dead"]
Mode = Literal["step", "record", "predicted"]


@dataclass(frozen=True, slots=True)
class Source:
    """The text of one file that was stepped, as the learner wrote it."""

    file: str  # the code object's co_filename: the key that stops and operations use
    label: str  # what a person reads: 'your cell', 'kit/parallel/collectives.py'
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
    values: np.ndarray | None  # a copy, shape as above, when small (bfloat16 and float16 as float32); else None
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
        from kit.trace.sentences import sentence

        return sentence(self)


@dataclass(frozen=True, slots=True)
class Position:
    """One motion's outcome: where all ranks were when it returned."""

    motion: str  # 'start', 'step', 'over', 'into', 'out', 'to_collective', 'to_line 9', 'finish'
    states: tuple[RankState, ...]
    verdict: str | None = None  # 'Deadlock: ranks 0, 2, 3 wait in all_reduce (line 6); rank 1 finished without it.'

    def __str__(self) -> str:
        from kit.trace.sentences import sentences

        return sentences(self)

    def __getitem__(self, rank: int) -> RankState:
        return self.states[rank]

    def __iter__(self) -> Iterator[RankState]:
        return iter(self.states)

    def __len__(self) -> int:
        return len(self.states)


@dataclass(frozen=True, slots=True)
class Holding:
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
    holdings: tuple[Holding, ...]


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
    active: tuple[
        tuple[int, int], ...
    ] = ()  # (from, to): when its code was let run; between them a person was thinking
    output: tuple[Output, ...] = ()  # all it printed
    passes: tuple[Pass, ...] = ()  # where they were watched
    account: Account | None = None  # where memory was accounted for


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
class Trace(Questions):
    """A run: measured on ranks or predicted by a model, the same type.

    What one can ask of it (`bytes_sent`, `messages`, `spans`, `until`, `save`, ...) is in `kit.trace.asking`.
    """

    meta: Meta
    ranks: tuple[RankTrace, ...]
    positions: tuple[Position, ...] = ()
    sources: tuple[Source, ...] = field(default=(), repr=False)

    def source(self, file: str) -> Source | None:
        return next((s for s in self.sources if s.file == file), None)

    def stop(self, rank: int, position: int) -> Stop | None:
        """The stop a rank stood at, or had last passed, at a position of the record."""
        index = self.positions[position].states[rank].stop
        return self.ranks[rank].stops[index] if index >= 0 else None
