"""What happened on the ranks, as frozen facts.

Everything Lockstep shows is a pure function of these records, so they are plain data: strings, integers, numpy arrays.
Times are nanoseconds of the host's monotonic clock, sizes are bytes, ranks are global rank numbers. No torch here: a
kernel, a view or a test can hold a trace without importing it.

`str()` of a state is the sentence a person reads; the words beside a picture and the text of an error say the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy.typing as npt

from kit.trace.text import ANY, awaited, duration, named, operation_text

Phase = Literal["paused", "running", "waiting", "finished", "failed", "stopped", "dead"]
ENDED: dict[Phase, str] = {  # phases that no motion changes, as said of a rank that others still wait for
    "finished": "finished without it",
    "failed": "failed without it",
    "dead": "died",
}
PARTNER_LOST = "PartnerLost"  # the kind of failure of a rank that another's death has cut off
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

    def words(self, with_file: bool = False) -> str:
        """'line 8', or 'line 8 of collectives.py' where more than one file is in play."""
        return f"line {self.line} of {self.file.rpartition('/')[2]}" if with_file else f"line {self.line}"


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

    @property
    def inputs(self) -> tuple[Region, ...]:
        """What it reads."""
        return tuple(region for region in self.regions if region.role != "out")

    @property
    def outputs(self) -> tuple[Region, ...]:
        """What it writes."""
        return tuple(region for region in self.regions if region.role != "in")

    @property
    def words(self) -> str:
        """With its other side, as `RankState.operation` holds it: 'recv from rank 3', 'reduce to rank 0'."""
        return operation_text(self.name, self.peer, self.root)

    @property
    def at_line(self) -> str:
        """' (line 8)', to follow a verb; nothing where the line is not known."""
        return f" ({self.place.words()})" if self.place else ""

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
    elsewhere: bool = False  # in another file than the function that was run

    @property
    def first_line(self) -> str:
        """'ValueError: boom'."""
        lines = self.message.strip().splitlines()
        return f"{self.kind}: {lines[0]}" if lines else self.kind


@dataclass(frozen=True, slots=True)
class RankState:
    """A rank as one sees it from outside. `str()`: 'rank 0 waits in recv from rank 3 · line 8 · 1.9 s'."""

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
        waited = (duration(self.elapsed),) if self.phase == "waiting" and self.elapsed else ()
        return " · ".join((f"rank {self.rank} {self.clause}", *self.details, *waited))

    @property
    def clause(self) -> str:
        """What it does, without its number: 'waits in recv from rank 3', 'paused before line 5'."""
        line = self.place.words() if self.place else None
        match self.phase:
            case "paused" if self.held:
                return f"held before {line} by you" if line else "held by you"
            case "paused":
                return f"paused before {line}" if line else "has not begun"
            case "waiting":
                return f"waits in {self.awaited}"
            case "running":
                began = f"has been running for {duration(self.elapsed)}" if self.elapsed else "runs"
                return f"{began}, last seen at {line}" if line else began
            case "failed":
                elsewhere = self.error is not None and self.error.elsewhere
                where = f"failed at {self.place.words(elsewhere)}" if self.place else "failed"
                return f"{where}: {self.error.first_line}" if self.error else where
            case "stopped":
                signal = self.detail.removeprefix("stopped by ")
                return f"is stopped{f' ({signal})' if signal else ''}: continue it or reset the cluster"
            case "dead":
                return f"died: {self.detail}" if self.detail else "died"
            case "finished":
                return "finished"

    @property
    def details(self) -> tuple[str, ...]:
        """What stands after the clause, set apart by dots: the line of a wait, the operation that is next.

        Not how long it waits: that a person thought meanwhile is in it, and is not in the times of pictures.
        """
        if self.phase == "waiting":
            return (self.place.words(),) if self.place else ()
        if self.phase == "running" and self.detail:
            return (self.detail,)
        if self.phase == "paused" and self.operation:
            return (f"about to call {self.operation}",)
        return ()

    def holds_up(self, several: bool) -> str:
        """What keeps those that wait for it waiting, after its name: 'is paused before line 5'. several: like it."""
        if self.phase == "paused":
            how = f"{'are' if several else 'is'} {'held' if self.held else 'paused'}"
            return f"{how} before {self.place.words()}" if self.place else how
        if self.phase == "waiting":
            return f"{'wait' if several else 'waits'} in {self.awaited}"
        if self.phase == "running":
            return f"still {'run' if several else 'runs'}"
        if self.phase == "stopped":
            return f"{'are' if several else 'is'} stopped"
        return ENDED[self.phase]

    @property
    def awaited(self) -> str:
        return awaited(self.operation or "an operation", self.waiting_for)

    @property
    def elapsed(self) -> int:
        return 0 if self.since is None or self.now is None else max(0, self.now - self.since)


@dataclass(frozen=True, slots=True)
class Position:
    """One motion's outcome: where all ranks were when it returned. `str()`: a line for each, then the verdict."""

    motion: str  # 'start', 'step', 'over', 'into', 'out', 'to_collective', 'to_line 9', 'finish'
    states: tuple[RankState, ...]
    verdict: str | None = None  # 'Deadlock: ranks 0, 2, 3 wait in all_reduce (line 6); rank 1 finished without it.'

    def __str__(self) -> str:
        return "\n".join(map(str, (*self.states, self.verdict) if self.verdict else self.states))

    def advice(self, rank: int) -> str | None:
        """What would free a waiting rank, or whom a held rank keeps waiting; None when there is nothing to say."""
        state = self.states[rank]
        if state.phase == "waiting" and state.waiting_for:
            groups: dict[str, list[int]] = {}
            for other in state.waiting_for:
                groups.setdefault(self.states[other].holds_up(several=False), []).append(other)
            alike = ((ranks, self.states[ranks[0]].holds_up(several=len(ranks) > 1)) for ranks in groups.values())
            return ", ".join(f"{named(ranks)} {reason}" for ranks, reason in alike)
        freed = [other.rank for other in self.states if other.phase == "waiting" and rank in other.waiting_for]
        if state.phase == "paused" and freed:
            return f"{'let it go' if state.held else 'step it'} to free {named(freed)}"
        return None

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
    workspaces: int = 0  # on a GPU: what cuBLAS keeps to compute in
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
class Stretch:
    """What a rank's code did under a name that it gave itself, with `torch.profiler.record_function`."""

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
    stretches: tuple[Stretch, ...] = ()  # that its code named, in order of their beginnings; of recorded runs
    clock_error: int = 0  # ns: times that its device told are so far off the host's clock at most

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
            stretches=tuple(one for one in self.stretches if one.end <= moment),
            clock_error=self.clock_error,
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
class Record:
    """A run: measured on ranks or predicted by a model, the same type. A `Trace` is one that answers questions."""

    meta: Meta
    ranks: tuple[RankTrace, ...]
    positions: tuple[Position, ...] = ()
    sources: tuple[Source, ...] = field(default=(), repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles carry the facts alone, not what was worked out from them."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @cached_property
    def by_match(self) -> dict[str, list[Operation]]:
        """match -> the parts of one communication, in rank order; in order of first issue. Not to be changed.

        A receive from any source that has met no sender yet stands alone, under a key of its own.
        """
        groups: dict[str, list[Operation]] = {}
        operations = [op for rank in self.ranks for op in rank.operations]
        for op in sorted(operations, key=lambda op: (op.issued, op.rank, op.index)):
            alone = not op.match or op.peer == ANY
            groups.setdefault(f"?/{op.rank}/{op.index}" if alone else op.match, []).append(op)
        for entries in groups.values():
            entries.sort(key=lambda op: (op.rank, op.index))
        return groups
