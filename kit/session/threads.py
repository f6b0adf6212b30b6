"""`kit.threads`: 16 or 32 ranks where processes would be too many, as threads of one process."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kit.cluster.processes import Process, peer
from kit.probe import shipping
from kit.probe.wire import Channel
from kit.session.conductor import conductor_of
from kit.session.errors import RankError, what_went_wrong, with_traceback
from kit.session.meta import Call, describe
from kit.session.record import Recording, print_output
from kit.session.recorder import Recorder
from kit.trace.compare import mismatches
from kit.trace.facts import Position, RankState

if TYPE_CHECKING:
    from kit.cluster import Cluster

MOST = 128  # ranks
BACKEND = "threads of one process"
LABEL = "ranks are threads of one process and take turns: values, messages and bytes are real, times are not"
STARTING = 20.0  # s until a fork answers
SILENCE = 15.0  # s without a sign of life, which it gives every second
BUDGET = 16 << 20  # bytes of tensors that one rank may record

_numbers = itertools.count(1)


class Threads:
    """So many ranks, as threads of a process that is made for each `record` and gone after it."""

    def __init__(self, cluster: Cluster, ranks: int, patience: float) -> None:
        self._cluster = cluster
        self.size = ranks
        self._patience = patience

    def record(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Recording:
        """Runs `function(*args, **kwargs)` on all of them, as `kit.record` does on processes: `trace`, `results`."""
        from kit.session.recorded import keeper

        cluster = self._cluster
        if not cluster.live:
            recorded: Recording = cluster.record_on(self.size, function, *args, **kwargs)
            return recorded
        call = (function, args, kwargs)
        if (kept := keeper()) is not None:
            return kept.record(cluster, call, lambda: self._run(call))
        return self._run(call)

    def __repr__(self) -> str:
        return f"{self.size} ranks, {BACKEND}: .record(function, ...)"

    def _run(self, call: Call) -> Recording:
        self._cluster.ensure_running()
        package = shipping.pack(*call, self.size)
        meta = describe(self._cluster, package, call, self.size)
        links = conductor_of(self._cluster).links  # of the processes: no link lies between threads
        notes = (LABEL, *(note for note in meta["notes"] if links is None or note != links.in_words()))
        about = {"backend": BACKEND, "devices": ("cpu",) * self.size, "notes": notes}
        going = _Run(Recorder(package, "record", {**meta, **about}), self.size)
        with _process(self._cluster) as channel:
            channel.send(
                {
                    "size": self.size,
                    "function": package.function,
                    "arguments": package.arguments,
                    "sources": package.sources,
                    "root_file": package.root_file,
                    "budget": BUDGET,
                    "patience": self._patience,
                }
            )
            going.hear(channel)
        position = going.position()
        going.recorder.add(position)
        trace = going.recorder.trace()
        print_output(trace)
        wrong = what_went_wrong(position) or "\n".join(mismatches(trace))
        if wrong:
            raise with_traceback(RankError(wrong, trace), position)
        return Recording(trace, [going.results[rank] for rank in range(self.size)], call)


class _Run:
    """What the process tells of its ranks, until it is over."""

    def __init__(self, recorder: Recorder, size: int) -> None:
        self.recorder = recorder
        self.results: dict[int, bytes] = {}
        self._size = size
        self._states: dict[int, RankState] = {}
        self._verdict: str | None = None

    def hear(self, channel: Channel) -> None:
        try:
            while (message := channel.receive()) is not None:
                if message["kind"] == "over":
                    self._states |= {state.rank: state for state in message["states"]}
                    self._verdict = message["verdict"]
                    return
                self.recorder.hear(message)
                if message.get("result") is not None:
                    self.results[message["rank"]] = message["result"]
            self._verdict = "the process whose threads the ranks were died, and what they did is lost."
        except TimeoutError:
            self._verdict = f"the process whose threads the ranks were gave no sign of life for {SILENCE:g} s."

    def position(self) -> Position:
        unknown = (RankState(rank, "dead", detail="its process died") for rank in range(self._size))
        states = tuple(self._states.get(state.rank, state) for state in unknown)
        return Position("record", states, self._verdict)


@contextmanager
def _process(cluster: Cluster) -> Iterator[Channel]:
    """A fork of the cluster's host agent, which becomes ranks as soon as it is told what to do; it ends with this."""
    line = cluster.folder / f"t{next(_numbers)}.sock"  # not longer than the kernel's own socket there
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(line))
        try:
            door.listen(1)
            door.settimeout(STARTING)
            cluster.connection.send({"kind": "threads", "line": str(line)})
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


def threads_on(cluster: Cluster, ranks: int, patience: float) -> Threads:
    """See `kit.threads`."""
    if not isinstance(ranks, int) or isinstance(ranks, bool) or not 1 <= ranks <= MOST:
        raise ValueError(f"ranks is a whole number from 1 to {MOST}, not {ranks!r}: kit.threads(ranks=16)")
    if not isinstance(patience, int | float) or not patience > 0:
        raise ValueError(f"patience is a time in seconds, more than 0, not {patience!r}")
    return Threads(cluster, ranks, patience)
