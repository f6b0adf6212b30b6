"""A session with the face of a live one, moving through a trace that already knows what will happen."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from kit.trace.facts import Frame, Memory, Meta, Operation, Place, Position, RankState, RankTrace, Source, Stop
from kit.trace.trace import Trace

LINES = ("def relay(x):", "    dist.send(x, 1)", "    dist.recv(x, 1)", "    return x")
PLACE = [Place("cell", line, "relay") for line in (1, 2, 3, 4)]


def _stop(rank: int, index: int, line: int, about_to: str | None = None) -> Stop:
    return Stop(rank, index, index * 1000, (Frame(PLACE[line - 1], (), ()),), Memory(1, 1, "none"), (), 0, about_to)


def relay_trace() -> Trace:
    """Two ranks, five positions: lines 1, 2 (about to send), 3, 4, the end."""
    stops = [
        tuple(_stop(rank, i, line, "send" if line == 2 else None) for i, line in enumerate((1, 2, 3, 4, 4)))
        for rank in (0, 1)
    ]
    positions = []
    for index, line in enumerate((1, 2, 3, 4, 4)):
        phase = "finished" if index == 4 else "paused"
        seen = {"place": PLACE[line - 1], "stop": index, "since": 0, "now": index * 1000}
        states = tuple(RankState(rank, phase, **seen) for rank in (0, 1))
        positions.append(Position("start" if index == 0 else "step", states))
    operations: tuple[Operation, ...] = ()
    ranks = tuple(RankTrace(rank, stops[rank], operations, ((0, 5000),)) for rank in (0, 1))
    meta = Meta("relay", "step", 2, "gloo", ("cpu", "cpu"), arguments="x: 8 x float32")
    return Trace(meta, ranks, tuple(positions), (Source("cell", "your cell", LINES),))


class FakeSession:
    """Reveals the positions of `whole` one motion at a time, as live ranks would make them."""

    def __init__(self, whole: Trace, revealed: int = 1) -> None:
        self.whole, self.revealed = whole, revealed
        self.position = revealed - 1
        self.known: Trace | None = None
        self.calls: list[tuple[str, Any]] = []
        self.ended: str | None = None
        self.gate = threading.Event()
        self.gate.set()

    @property
    def trace(self) -> Trace:
        """The same object until the record grows, as a session's is."""
        if self.known is None or len(self.known.positions) != self.revealed:
            self.known = replace(self.whole, positions=self.whole.positions[: self.revealed])
        return self.known

    @property
    def state(self) -> Position:
        return self.trace.positions[self.position]

    @property
    def live(self) -> bool:
        return self.ended is None and self.position == self.revealed - 1

    def back(self) -> Position:
        return self.seek(max(0, self.position - 1))

    def forward(self) -> Position:
        return self.seek(min(self.revealed - 1, self.position + 1))

    def seek(self, index: int) -> Position:
        self.position = index
        return self.state

    def _move(self, motion: str, ranks: Any, by: int = 1) -> Position:
        self.calls.append((motion, ranks))
        self.gate.wait(10)
        self.revealed = min(len(self.whole.positions), self.revealed + by)
        return self.seek(self.revealed - 1)

    def step(self, ranks: Any = None, timeout: float = 3.0) -> Position:
        return self._move("step", ranks)

    def over(self, ranks: Any = None, timeout: float = 3.0) -> Position:
        return self._move("over", ranks)

    def into(self, ranks: Any = None, timeout: float = 3.0) -> Position:
        return self._move("into", ranks)

    def out(self, ranks: Any = None, timeout: float = 3.0) -> Position:
        return self._move("out", ranks)

    def to_collective(self, ranks: Any = None, timeout: float = 3.0) -> Position:
        return self._move("to_collective", ranks)

    def finish(self, ranks: Any = None, timeout: float = 3.0) -> Position:
        return self._move("finish", ranks, by=99)

    def reset(self) -> None:
        self.calls.append(("reset", None))
        self.revealed, self.position = 1, 0


@pytest.fixture
def session() -> FakeSession:
    return FakeSession(relay_trace())
