"""Looking at a saved record without any cluster."""

from __future__ import annotations

from pathlib import Path

from kit.session.reading import Reading
from kit.trace.facts import Trace


class Replay(Reading):
    """`Replay(trace)` or `Replay.load(path)`: back, forward, seek, state, panel, as on a live session."""

    def __init__(self, trace: Trace) -> None:
        if not trace.positions:
            raise ValueError("this trace has no positions to go through: it was recorded, not stepped")
        self._trace = trace
        self._position = 0

    @classmethod
    def load(cls, path: str | Path) -> Replay:
        return cls(Trace.load(path))

    @property
    def trace(self) -> Trace:
        return self._trace

    @property
    def ended(self) -> str | None:
        return "a saved record"
