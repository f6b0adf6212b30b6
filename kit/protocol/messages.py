"""Every message between kernel, host agent, coordinator and ranks, grouped by who says it to whom.

    ┌────────┐  orders >   ┌────────────────────────┐  orders >   ┌──────┐
    │ kernel │ ─────────── │ host agent             │ ─────────── │ rank │  one process for each rank,
    └────────┘    < news   │ (holds the coordinator)│    < news   └──────┘  forked by the host agent
                           └────────────────────────┘

The host agent forks and ends ranks, and relays; the coordinator, an object inside it, decides: which operations match,
when a motion is over, who waits for ever. Times are nanoseconds of the host's monotonic clock unless a comment says
otherwise. News of a run name the run, so that late ones can be told apart.

The classes have no slots, because Python pickles frozen classes with slots three times as slowly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # whoever only relays messages need not load what is in them
    from kit.protocol.links import Links
    from kit.protocol.parcels import Parcel
    from kit.trace.facts import Account, Failure, Operation, Pass, Phase, Place, RankState, Stop, Stretch, TensorFact

How = Literal["step", "over", "into", "out", "to_collective", "to_line", "finish"]

# -- what a run is


@dataclass(frozen=True)
class Task:
    """A function to run, as all its ranks are told it."""

    run: int
    mode: Literal["step", "record"]
    size: int  # the first so many ranks take part
    store: str | None  # the file in which they meet as a new world; None: they are in one of this size already
    function: Parcel
    rest: tuple[Parcel, ...]  # what else is in the learner's modules that it is from
    sources: dict[str, tuple[str, ...]]  # file -> lines, of all code shipped by value
    root_file: str  # of the function itself
    budget: int  # bytes of tensors that one rank may capture
    links: Links | None = None  # slower ones
    account: Mapping[str, tuple[str, ...]] | None = None  # kind of memory -> variables that hold it, to account for it


# -- the kernel's orders to a host agent


@dataclass(frozen=True)
class Reset:
    """Kill all ranks and fork new ones, which find the modules of `preload` imported."""

    preload: tuple[str, ...] = ()


@dataclass(frozen=True)
class ForkThreads:
    """Fork a process whose threads are ranks; it calls the kernel at the socket `line`."""

    line: str


@dataclass(frozen=True)
class Shutdown:
    """End every process of the cluster."""


@dataclass(frozen=True)
class RunThreads:
    """To a process whose threads are ranks: its one task."""

    task: Task
    arguments: tuple[Parcel, ...]  # by rank
    patience: float  # s that one rank may work without talking to another


# -- the kernel's orders to the coordinator


@dataclass(frozen=True)
class Run:
    """Begin a task. When stepping, the ranks come to stand before its first line, which is a motion of its own.

    patience: ns for which ranks that run are waited for. That motion is over then, wherever they are; a recorded run in
    which others can never go on is judged without them.
    """

    task: Task
    arguments: tuple[Parcel, ...]  # by rank
    patience: int
    motion: int = 0


@dataclass(frozen=True)
class Move:
    run: int
    motion: int
    ranks: tuple[int, ...]
    how: How
    patience: int  # ns
    line: int = 0  # for 'to_line'
    file: str | None = None  # None: the function's own


@dataclass(frozen=True)
class Look:
    """Ask the ranks of a recorded run where they are, and say so."""

    run: int


@dataclass(frozen=True)
class Abort:
    """All ranks are to leave the run."""

    run: int
    reason: str


# -- the coordinator's orders to a rank


@dataclass(frozen=True)
class Begin:
    task: Task
    arguments: Parcel


@dataclass(frozen=True)
class Go:
    run: int
    how: How
    line: int
    file: str | None


@dataclass(frozen=True)
class Launch:
    """All participants have posted a matching operation: do it."""

    run: int
    index: int
    source: int | None = None  # of a receive from any source: the sender that was met


@dataclass(frozen=True)
class Refuse:
    """The participants disagree, as the sentence says: the operation fails."""

    run: int
    index: int
    sentence: str


@dataclass(frozen=True)
class CutOff:
    """A partner's part of a launched operation failed, as the sentence says: this one may wait for it for ever."""

    run: int
    index: int
    sentence: str


@dataclass(frozen=True)
class ReportPlease:
    """Another rank has been waiting for long: say what you have issued."""

    run: int


@dataclass(frozen=True)
class WherePlease:
    """A person wants to know where the ranks are."""

    run: int


@dataclass(frozen=True)
class Leave:
    run: int
    reason: str


# -- a rank's news for its host agent


@dataclass(frozen=True)
class Ready:
    """It has joined the group of all ranks."""

    rank: int


@dataclass(frozen=True)
class Intruded:
    """Another user of the host got into the group of all ranks, which it has therefore left."""

    rank: int
    sentence: str


@dataclass(frozen=True)
class Registered:
    """It has a number among ipyparallel's engines."""

    rank: int
    engine: int


@dataclass(frozen=True)
class Loads:
    """It loads a module that the next generation can share."""

    module: str


# -- a rank's news of a run: for the coordinator, which passes all but waits on to the kernel


@dataclass(frozen=True)
class AtStop:
    """It stands still: paused, finished or failed."""

    run: int
    rank: int
    phase: Phase
    stop: Stop  # with numbers in the place of tensors
    facts: dict[int, TensorFact]  # behind the numbers that come for the first time
    active: tuple[int, int]  # (from, to): since it was last let go
    error: Failure | None = None
    result: Parcel | None = None
    obeyed: int = 0  # how often it had been told to go by then: one that is on its way moves it on at once


@dataclass(frozen=True)
class Posted:
    """It has asked for an operation."""

    run: int
    rank: int
    operation: Operation


@dataclass(frozen=True)
class Waits:
    """Its code stands in wait for an operation that it has posted."""

    run: int
    rank: int
    index: int
    since: int
    place: Place | None = None  # where it waits, which is not where it issued an asynchronous operation
    gives_up: bool = False  # after some time, by itself


@dataclass(frozen=True)
class Operated:
    """More is known of an operation: that it is over, or was waited for."""

    run: int
    rank: int
    operation: Operation


@dataclass(frozen=True)
class PartFailed:
    """The real operation raised on this rank, after all had been told to do it."""

    run: int
    rank: int
    index: int
    error: str


@dataclass(frozen=True)
class Operations:
    """A recorded function has ended: all its operations."""

    run: int
    rank: int
    operations: tuple[Operation, ...]
    passes: tuple[Pass, ...] = ()
    account: Account | None = None
    stretches: tuple[Stretch, ...] = ()
    clock_error: int = 0  # ns


@dataclass(frozen=True)
class Report:
    """A recorded function waits for long, or was asked: its operations so far."""

    run: int
    rank: int
    operations: tuple[Operation, ...]
    waiting: int | None  # index of the operation it waits in
    place: Place | None
    answer: bool  # it was asked


@dataclass(frozen=True)
class Where:
    """Where a recorded function is, which was asked."""

    run: int
    rank: int
    place: Place | None
    waiting: Operation | None  # what it waits in
    still: float = 0.0  # s for which it has neither computed nor moved
    loads: bool = False  # it has not begun: it loads the function, and what that imports


@dataclass(frozen=True)
class Unloaded:
    """The function could not be begun: it, or what it imports, failed to load."""

    run: int
    rank: int
    error: Failure
    time: int


@dataclass(frozen=True)
class Ended:
    """It has left the run. clean: in the world it began in, of its own accord."""

    run: int
    rank: int
    clean: bool


# -- the host agent's news of its ranks' processes: for the coordinator and the kernel


@dataclass(frozen=True)
class RankLost:
    generation: int
    rank: int
    detail: str  # 'killed by SIGKILL'


@dataclass(frozen=True)
class RankSuspended:
    generation: int
    rank: int
    detail: str  # 'stopped by SIGSTOP'


@dataclass(frozen=True)
class RankResumed:
    generation: int
    rank: int


# -- a host agent's news for the kernel


@dataclass(frozen=True)
class HostUp:
    """The first word of a host agent, before it imports anything."""

    pid: int


@dataclass(frozen=True)
class Found:
    """What the host agent has found, and what was decided, before any rank is forked."""

    backend: str
    devices: tuple[str, ...]  # by rank
    notes: tuple[str, ...]
    accelerators: tuple[tuple[str, str, int], ...]  # (device, name, bytes)
    build: str
    imported_in: float  # s


@dataclass(frozen=True)
class Refused:
    """There will be no ranks. why: the wish makes no sense here, the environment lacks a part, or something failed."""

    why: Literal["wish", "environment", "failure"]
    detail: str


@dataclass(frozen=True)
class Forked:
    generation: int
    pids: tuple[int, ...]  # by rank


@dataclass(frozen=True)
class AllReady:
    """Every rank of a generation has joined its group."""

    generation: int


@dataclass(frozen=True)
class ControllerLost:
    """ipyparallel's controller has ended."""


@dataclass(frozen=True)
class HostLost:
    """The kernel's line to the host agent is cut. Told by the kernel's own end of it."""


@dataclass(frozen=True)
class Alive:
    """A process whose threads are ranks is at work."""


@dataclass(frozen=True)
class Over:
    """A process whose threads are ranks is done."""

    states: tuple[RankState, ...]
    verdict: str | None


# -- the coordinator's news for the kernel


@dataclass(frozen=True)
class Settled:
    """A motion is over."""

    run: int
    motion: int
    states: tuple[RankState, ...]
    verdict: str | None  # the sentence of a deadlock


@dataclass(frozen=True)
class Changed:
    """States have changed while no motion was under way."""

    run: int
    what: str
    states: tuple[RankState, ...]
    verdict: str | None


@dataclass(frozen=True)
class Looked:
    """Where the ranks of a recorded run are."""

    run: int
    states: tuple[RankState, ...]


@dataclass(frozen=True)
class Verdict:
    """A recorded run cannot be completed."""

    run: int
    sentence: str
    states: tuple[RankState, ...]
    last: tuple[Operation, ...] = ()  # what a dead rank had entered; its partners may tell what they did of it


# -- who hears what

RunOrder = Move | Look | Abort
RunNews = AtStop | Posted | Waits | Operated | PartFailed | Operations | Report | Where | Unloaded | Ended
ProcessNews = RankLost | RankSuspended | RankResumed

ToCoordinator = Run | RunOrder | RunNews | ProcessNews
ToHost = Reset | ForkThreads | Shutdown | Run | RunOrder
ToRank = Begin | Go | Launch | Refuse | CutOff | ReportPlease | WherePlease | Leave
FromRank = Ready | Intruded | Registered | Loads | RunNews
FromCoordinator = RunNews | Settled | Changed | Looked | Verdict
ToKernel = (
    HostUp
    | Found
    | Refused
    | Forked
    | Registered
    | AllReady
    | ControllerLost
    | HostLost
    | ProcessNews
    | FromCoordinator
)
FromThreads = Alive | Over | RunNews
