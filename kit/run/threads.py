"""16 or 32 ranks where processes would be too many: threads of one process."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn, Self

from kit.clusters.processes import Process, peer
from kit.probe import shipping
from kit.protocol.messages import AtStop, ForkThreads, FromThreads, Over, RunThreads
from kit.protocol.wire import Channel
from kit.run.call import Call, describe
from kit.run.record import conclude
from kit.run.recorder import Recorder
from kit.run.runner import Report, Runner, RunOptions, SweepPlan
from kit.run.scheduler import task_of
from kit.trace.facts import Position, RankState

if TYPE_CHECKING:
    from kit.clusters.cluster import Cluster
    from kit.protocol.parcels import Parcel
    from kit.run.results import Recording

BACKEND = "threads of one process"
LABEL = "ranks are threads of one process and take turns: values, messages and bytes are real, times are not"
STARTING = 20.0  # s until a fork answers
SILENCE = 15.0  # s without a sign of life, which it gives every second

_numbers = itertools.count(1)


class ThreadRunner(Runner):
    """So many ranks, as threads of a process that is made for each run and gone after it."""

    backend = BACKEND
    links = None  # between threads there are none

    def __init__(self, host: Cluster, ranks: int, patience: float) -> None:
        self._host = host
        self._size = ranks
        self._patience = patience

    @property
    def size(self) -> int:
        return self._size

    @property
    def devices(self) -> tuple[str, ...]:
        return ("cpu",) * self._size

    def run(self, call: Call, options: RunOptions, quiet: bool = False) -> Recording:
        host = self._host.ensure_running()
        package = shipping.pack(*call, self.size)
        meta = describe(host, package, call, self.size, links=None)  # none lie between threads
        about = {"backend": self.backend, "devices": self.devices, "notes": (LABEL, *meta["notes"])}
        going = _InThreads(Recorder(package, "record", {**meta, **about}), self.size)
        with _process(host) as channel:
            channel.send(RunThreads(task_of(package, 1, "record", self.size), package.arguments, self._patience))
            going.hear(channel)
        return conclude(going.recorder, going.position(), going.results, call, not quiet)

    def open_session(self, call: Call, options: RunOptions) -> NoReturn:
        raise ValueError("ranks that are threads can be recorded, not stepped: kit.step(fn) steps ranks of a cluster")

    def sweep(self, plan: SweepPlan) -> NoReturn:
        raise ValueError("between threads there is no link to be timed: kit.bandwidth() times ranks of a cluster")

    def report(self) -> Report:
        return self._host.report()

    def reset(self) -> Self:
        return self

    def stop(self) -> None:
        """Its processes are gone."""

    def __repr__(self) -> str:
        return f"{self.size} ranks, {BACKEND}"


class _InThreads:
    """What the process tells of its ranks, until it is over."""

    def __init__(self, recorder: Recorder, size: int) -> None:
        self.recorder = recorder
        self.results: dict[int, Parcel] = {}
        self._size = size
        self._states: dict[int, RankState] = {}
        self._verdict: str | None = None

    def hear(self, channel: Channel[FromThreads, RunThreads]) -> None:
        try:
            while (message := channel.receive()) is not None:
                if isinstance(message, Over):
                    self._states |= {state.rank: state for state in message.states}
                    self._verdict = message.verdict
                    return
                self.recorder.hear(message)
                if isinstance(message, AtStop) and message.result is not None:
                    self.results[message.rank] = message.result
            self._verdict = "the process that ran all ranks as threads died, and what they did is lost."
        except TimeoutError:
            self._verdict = f"the process that ran all ranks as threads gave no sign of life for {SILENCE:g} s."

    def position(self) -> Position:
        unknown = (RankState(rank, "dead", detail="its process died") for rank in range(self._size))
        states = tuple(self._states.get(state.rank, state) for state in unknown)
        return Position("record", states, self._verdict)


@contextmanager
def _process(cluster: Cluster) -> Iterator[Channel[FromThreads, RunThreads]]:
    """A fork of the cluster's host agent, which becomes ranks as soon as it is told what to do; it ends with this."""
    line = cluster.folder / f"t{next(_numbers)}.sock"  # not longer than the kernel's own socket there
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(line))
        try:
            door.listen(1)
            door.settimeout(STARTING)
            cluster.connection.send(ForkThreads(str(line)))
            kernel_side, _ = door.accept()
        finally:
            line.unlink()
    process = Process(peer(kernel_side))
    try:
        with kernel_side:
            kernel_side.settimeout(SILENCE)
            yield Channel(kernel_side)
    finally:
        process.kill()
        process.close()
