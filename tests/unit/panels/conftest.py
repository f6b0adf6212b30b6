"""A session with the face of a live one, moving through a trace that already knows what will happen."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kit.protocol.messages import How
from kit.run.cursor import Steppable
from kit.trace.facts import Frame, Memory, Meta, Operation, Place, Position, RankState, RankTrace, Source, Stop
from kit.trace.trace import Trace

LINES = ("def relay(x):", "    dist.send(x, 1)", "    dist.recv(x, 1)", "    return x")
PLACE = [Place("cell", line, "relay") for line in (1, 2, 3, 4)]


ISSUED = (0, 0, 1, 2, 2)  # operations, at each position


def _stop(rank: int, index: int, line: int) -> Stop:
    frames = (Frame(PLACE[line - 1], (), ()),)
    return Stop(rank, index, index * 1000, frames, Memory(1, 1, "none"), (), ISSUED[index])


def relay_trace() -> Trace:
    """Two ranks, stepped by lines to five positions: lines 1, 2 (which sends), 3 (which receives), 4, the end."""
    stops = [tuple(_stop(rank, i, line) for i, line in enumerate((1, 2, 3, 4, 4))) for rank in (0, 1)]
    positions = []
    for index, line in enumerate((1, 2, 3, 4, 4)):
        phase = "finished" if index == 4 else "paused"
        seen = {"place": PLACE[line - 1], "stop": index, "since": 0, "now": index * 1000, "operations": ISSUED[index]}
        states = tuple(RankState(rank, phase, **seen) for rank in (0, 1))
        positions.append(Position("start" if index == 0 else "step", states))
    operations: tuple[Operation, ...] = ()
    ranks = tuple(RankTrace(rank, stops[rank], operations, ((0, 5000),)) for rank in (0, 1))
    meta = Meta("relay", "step", 2, "gloo", ("cpu", "cpu"), arguments="x: 8 x float32")
    return Trace(meta, ranks, tuple(positions), (Source("cell", "your cell", LINES),))


class FakeSession(Steppable):
    """Reveals the positions of `whole` one motion at a time, as live ranks would make them."""

    def __init__(self, whole: Trace, revealed: int = 1) -> None:
        self.whole, self.revealed = whole, revealed
        self._position = revealed - 1
        self.known: Trace | None = None
        self.calls: list[tuple[str, Any]] = []
        self.lost: str | None = None
        self.gate = threading.Event()
        self.gate.set()

    @property
    def trace(self) -> Trace:
        """The same object until the record grows, as a session's is."""
        if self.known is None or len(self.known.positions) != self.revealed:
            self.known = replace(self.whole, positions=self.whole.positions[: self.revealed])
        return self.known

    @property
    def ended(self) -> str | None:
        return self.lost

    @property
    def live(self) -> bool:
        return self.ended is None and self.position == self.revealed - 1

    def seek(self, index: int) -> Position:
        self._position = index
        return self.state

    def _move(self, how: How, ranks: Any, timeout: float, line: int = 0, file: str | None = None) -> Position:
        self.calls.append((how, ranks))
        self.gate.wait()
        self.revealed = min(len(self.whole.positions), self.revealed + (99 if how == "finish" else 1))
        return self.seek(self.revealed - 1)

    def reset(self) -> Position:
        self.calls.append(("reset", None))
        self.revealed = 1
        return self.seek(0)

    def before_reset(self, listener: Callable[[], None]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    @property
    def results(self) -> list[Any]:
        raise NotImplementedError

    def export(self, path: str | Path) -> Path:
        raise NotImplementedError


@pytest.fixture
def session() -> FakeSession:
    return FakeSession(relay_trace())
