"""Running a function on all ranks at full speed, and comparing what they did afterwards."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kit.probe import shipping
from kit.protocol.messages import AllReady, AtStop, ControllerLost, HostLost, Look, Looked, ToKernel, Unloaded, Verdict
from kit.run.call import Call, describe
from kit.run.errors import RankError, what_went_wrong, with_traceback
from kit.run.patience import Patience
from kit.run.recorder import Recorder
from kit.run.results import Recording, opened
from kit.trace.facts import Position, RankState
from kit.trace.match import disagreement, first_clash
from kit.trace.trace import Trace

if TYPE_CHECKING:
    from kit.protocol.parcels import Parcel
    from kit.run.scheduler import Replaced, RunScheduler

Accounting = Mapping[str, tuple[str, ...]]
PATIENCE = 3.0  # s that ranks that run are waited for once others can never go on
LAST_WORDS = 0.5  # s after a verdict in which ranks may still end by themselves


class _AtFullSpeed:
    """Collects one recorded run until every rank has ended or the host agent has a verdict."""

    def __init__(
        self, scheduler: RunScheduler, call: Call, world: int, account: Accounting | None, limit: float | None
    ) -> None:
        package = shipping.pack(*call, world)
        meta = describe(scheduler.cluster, package, call, world, scheduler.throttle)
        self.recorder = Recorder(package, "record", meta)
        if account is not None:
            self.recorder.note("memory was accounted for: everything takes longer than without")
        self.world = world
        self.results: dict[int, Parcel] = {}
        self.states: dict[int, RankState] = {}
        self.verdict: Verdict | None = None
        self.lost: str | None = None
        self.news = threading.Condition()
        self.scheduler = scheduler
        patience = int(PATIENCE * 1e9)
        self.number = scheduler.begin(package, "record", world, self._hear, patience=patience, account=account)
        self.patience = Patience(lambda: scheduler.send(Look(self.number)), limit)

    def wait(self) -> None:
        """Until it is over. A Ctrl-C ends the run on the ranks and is raised again."""
        try:
            with self.news:
                while not self._over():
                    self.news.wait(0.2)
                    self.patience.spend()
                if self.verdict is not None:
                    died = bool(self.verdict.last)  # it ends no more, and what the others did of it counts
                    limit = 4 * LAST_WORDS if died else LAST_WORDS
                    self.news.wait_for(lambda: len(self.states) >= self.world - died, limit)
        except KeyboardInterrupt:
            self.scheduler.broke("the run was interrupted")
            raise
        finally:
            self.patience.over(well=len(self.states) == self.world)
        if self.verdict is not None or self.lost is not None or self.patience.sentence is not None:
            self.scheduler.broke("the run before could not be completed")
        else:
            self.scheduler.wait_until_left(self.number, 1.0)

    def position(self) -> Position:
        known = {s.rank: s for s in (self.verdict.states if self.verdict else self.patience.states)}
        states = tuple(
            self.states.get(r) or known.get(r) or RankState(r, "dead", detail=self.lost or "")
            for r in range(self.world)
        )
        return Position("record", states, self._sentence())

    def _sentence(self) -> str | None:
        if self.verdict is None:
            return self.lost or self.patience.sentence
        sentence, last = self.verdict.sentence, self.verdict.last
        beside = next(filter(None, (disagreement(self.recorder.parts(operation)) for operation in last)), None)
        return sentence if beside is None or beside in sentence else f"{sentence} {beside}"

    def _over(self) -> bool:
        over = self.verdict is not None or self.lost is not None or len(self.states) == self.world
        return over or self.patience.sentence is not None

    def _hear(self, message: ToKernel | Replaced) -> None:
        with self.news:
            match message:
                case HostLost():
                    self.lost = "the cluster lost its agent"
                case ControllerLost():
                    self.lost = "the cluster lost its controller"
                case AllReady():
                    self.lost = "the ranks were reset"
                case Verdict():
                    self.verdict = self.verdict or message
                case Looked():
                    self.patience.told(message.states)
                case Unloaded(rank=rank, error=error):
                    self.states[rank] = RankState(rank, "failed", error=error)
                case AtStop(rank=rank, stop=stop, error=error):
                    self.recorder.hear(message)
                    place = error.place if error else None
                    self.states[rank] = RankState(
                        rank, message.phase, place, error=error, stop=stop.index, operations=stop.operations
                    )
                    if message.result is not None:
                        self.results[rank] = message.result
                case _:
                    self.recorder.hear(message)
            self.news.notify_all()


def run(
    scheduler: RunScheduler,
    call: Call,
    world: int | None = None,
    show_output: bool = True,
    account: Accounting | None = None,
    limit: float | None = None,
) -> Recording:
    """Runs a function on the first `world` ranks. RankError when they fail, hang or disagree.

    account: for a kind of memory the variables that hold it; the ranks then account for memory. limit: s after which
    the run is given up; None: never.
    """
    size = scheduler.size
    if world is not None and (not isinstance(world, int) or not 1 <= world <= size):
        raise ValueError(f"this cluster has {size} ranks: give a number from 1 to {size}, not {world!r}")
    going = _AtFullSpeed(scheduler, call, size if world is None else world, account, limit)
    going.wait()
    try:
        return conclude(going.recorder, going.position(), going.results, call, show_output)
    except RankError as error:
        if len(going.states) == going.world and error.trace.mismatches():
            scheduler.broke("the run before left operations open")
        raise


def conclude(
    recorder: Recorder, position: Position, results: dict[int, Parcel], call: Call, show_output: bool
) -> Recording:
    """The recording of a run that ended at `position`. RankError when something went wrong until then."""
    recorder.add(position)
    trace = recorder.trace()
    if show_output:
        print_output(trace)
    wrong = what_went_wrong(position)
    if wrong and (clash := first_clash(trace)) and clash not in wrong:  # what a library says of it tells less
        wrong = f"{wrong}\n{clash}"
    wrong = wrong or "\n".join(trace.mismatches())
    if wrong:
        raise with_traceback(RankError(wrong, trace), position)
    return Recording.of(trace, lambda: opened(results), call)


def print_output(trace: Trace) -> None:
    """Prints what the ranks printed, each line with its rank's number in front."""
    for rank in trace.ranks:
        text = "".join(part.text if part.text.endswith("\n") else part.text + "\n" for part in rank.output)
        for line in text.splitlines():
            print(f"[rank {rank.rank}] {line}")
