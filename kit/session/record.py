"""Running a function on all ranks at full speed, and comparing what they did afterwards."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kit
from kit.probe import shipping
from kit.probe.wire import Message
from kit.session.conductor import conductor_of
from kit.session.errors import RankError, what_went_wrong, with_traceback
from kit.session.meta import Call, describe
from kit.session.recorder import Recorder
from kit.session.spoken import by_rank
from kit.trace.compare import disagreement, mismatches
from kit.trace.facts import Position, RankState, Trace

if TYPE_CHECKING:
    from kit.cluster import Cluster

LAST_WORDS = 0.5  # s after a verdict in which ranks may still end by themselves


class Recording:
    """What `kit.record` returns: `trace`, `results` (a list by rank), `panel()`."""

    def __init__(self, trace: Trace, results: list[bytes], call: Call) -> None:
        self.trace = trace
        self._results = results
        self._call = call

    @property
    def results(self) -> list[Any]:
        """What the function returned, by rank."""
        return [shipping.unpack(blob) for blob in self._results]

    def export(self, path: str | Path) -> Path:
        """Writes a plain script, without kit, that torchrun or mpiexec starts with the same function and arguments."""
        from kit.session.export import write

        return write(path, *self._call, world=self.trace.meta.world)

    def panel(self, predicted: Trace | None = None) -> Any:
        """Traffic and time by rank, `predicted` above measured; words and a still picture outside a notebook."""
        return kit.panel_of(self, predicted)

    def __repr__(self) -> str:
        meta = self.trace.meta
        return "\n".join([f"{meta.function} on {meta.world} ranks ({meta.backend})", *by_rank(self.results)])


class _Run:
    """Collects one recorded run until every rank has ended or the host agent has a verdict."""

    def __init__(self, cluster: Cluster, call: Call, world: int, order: dict[str, Any]) -> None:
        self.package = shipping.pack(*call, world)
        self.recorder = Recorder(self.package, "record", describe(cluster, self.package, call, world))
        if "account" in order:
            self.recorder.note("memory was accounted for: everything takes longer than without")
        self.world = world
        self.results: dict[int, bytes] = {}
        self.states: dict[int, RankState] = {}
        self.verdict: Message | None = None
        self.lost: str | None = None
        self.news = threading.Condition()
        self.conductor = conductor_of(cluster)
        self.number = self.conductor.begin(self.package, "record", world, self._hear, **order)

    def wait(self) -> None:
        """Until it is over. A Ctrl-C ends the run on the ranks and is raised again."""
        try:
            with self.news:
                while not self._over():
                    self.news.wait(0.2)
                if self.verdict is not None:
                    died = self.verdict["last"] is not None  # it ends no more, and what the others did of it counts
                    limit = 4 * LAST_WORDS if died else LAST_WORDS
                    self.news.wait_for(lambda: len(self.states) >= self.world - died, limit)
        except KeyboardInterrupt:
            self.conductor.broke("the run was interrupted")
            raise
        if self.verdict is not None or self.lost is not None:
            self.conductor.broke("the run before could not be completed")
        else:
            self.conductor.wait_until_left(self.number, 1.0)

    def position(self) -> Position:
        known = {s.rank: s for s in self.verdict["states"]} if self.verdict else {}
        states = tuple(
            self.states.get(r) or known.get(r) or RankState(r, "dead", detail=self.lost or "")
            for r in range(self.world)
        )
        return Position("record", states, self._sentence())

    def _sentence(self) -> str | None:
        if self.verdict is None:
            return self.lost
        sentence, last = self.verdict["sentence"], self.verdict["last"]
        beside = disagreement(self.recorder.parts(last)) if last is not None else None
        return sentence if beside is None or beside in sentence else f"{beside} {sentence}"

    def _over(self) -> bool:
        return self.verdict is not None or self.lost is not None or len(self.states) == self.world

    def _hear(self, message: Message) -> None:
        kind = message["kind"]
        with self.news:
            if kind in ("agent-lost", "reset-done", "controller-lost"):
                self.lost = {"reset-done": "the ranks were reset"}.get(
                    kind, "the cluster lost its " + kind.split("-")[0]
                )
            elif kind == "verdict" and self.verdict is None:
                self.verdict = message
            elif kind == "unloaded":
                self.states[message["rank"]] = RankState(message["rank"], "failed", error=message["error"])
            elif kind == "stop":
                self.recorder.hear(message)
                stop, error = message["stop"], message.get("error")
                place = error.place if error else None
                self.states[message["rank"]] = RankState(
                    message["rank"], message["phase"], place, error=error, stop=stop.index, operations=stop.operations
                )
                if message.get("result") is not None:
                    self.results[message["rank"]] = message["result"]
            else:
                self.recorder.hear(message)
            self.news.notify_all()


def run(cluster: Cluster, call: Call, world: int | None = None, show_output: bool = True, **order: Any) -> Recording:
    """Runs call = (function, args, kwargs) on the first `world` ranks. RankError when they fail, hang or disagree.

    order: more for the ranks to know: `account` has them account for memory.
    """
    size = _checked(cluster, world)
    going = _Run(cluster, call, size, order)
    going.wait()
    position = going.position()
    going.recorder.add(position)
    trace = going.recorder.trace()
    if show_output:
        print_output(trace)
    wrong = what_went_wrong(position) or "\n".join(mismatches(trace))
    if wrong:
        raise with_traceback(RankError(wrong, trace), position)
    return Recording(trace, [going.results[r] for r in range(size)], call)


def _checked(cluster: Cluster, world: int | None) -> int:
    if world is None:
        return cluster.size
    if not isinstance(world, int) or not 1 <= world <= cluster.size:
        raise ValueError(
            f"this cluster has {cluster.size} ranks: give a number from 1 to {cluster.size}, not {world!r}"
        )
    return world


def print_output(trace: Trace) -> None:
    """Prints what the ranks printed, each line with its rank's number in front."""
    for rank in trace.ranks:
        text = "".join(part.text if part.text.endswith("\n") else part.text + "\n" for part in rank.output)
        for line in text.splitlines():
            print(f"[rank {rank.rank}] {line}")
