"""A place in a record: going back and forward through it, and, where there are ranks, moving them on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit import shown
from kit.trace.facts import Position
from kit.trace.trace import Trace

if TYPE_CHECKING:
    from kit.protocol.messages import How

PATIENCE = 3.0  # s that a motion waits for ranks that run


class TraceCursor(ABC):
    """Goes back and forward through a trace."""

    about = ""  # what a reader must know first: that this is a recording, and of what
    _position: int

    @property
    @abstractmethod
    def trace(self) -> Trace:
        """The record by now."""

    @property
    def live(self) -> bool:
        """Whether the position in view is the newest and a rank can still be moved."""
        return False

    @property
    def ended(self) -> str | None:
        """Why the ranks cannot be moved any more; None while they can."""
        return None

    def on_change(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Calls `listener()` (from another thread) when the record grew without a motion of the caller; returns its
        end. A record that is complete never does.
        """
        return lambda: None

    @property
    def position(self) -> int:
        """Which position of the record is in view, from 0."""
        return self._position

    @property
    def state(self) -> Position:
        """Every rank at the position in view; `str()` is what a person reads."""
        return self.trace.positions[self._position]

    def back(self) -> Position:
        """One position back in the record; stays at the first."""
        return self.seek(max(0, self._position - 1))

    def forward(self) -> Position:
        """One position forward in the record; stays at the newest."""
        return self.seek(min(len(self.trace.positions) - 1, self._position + 1))

    def seek(self, position: int) -> Position:
        """To any position of the record, from 0; negative ones count from the end. ValueError outside it."""
        count = len(self.trace.positions)
        if not isinstance(position, int) or not -count <= position < count:
            raise ValueError(f"the record has positions 0 to {count - 1}, not {position!r}")
        self._position = position % count
        return self.state

    def panel(self, predicted: Trace | Callable[[Trace], Trace] | None = None) -> Any:
        """The stepping panel: a widget in a notebook, words and a still picture elsewhere.

        predicted: drawn above the measured times; a trace, or a function that re-times the session's own, for instance
        `lambda trace: kit.cost.predicted_trace(trace, latency=1e-4, bandwidth=1e9)`.
        """
        return shown.panel(self, predicted)

    def plot(self) -> Any:
        """What every rank did when, up to the position in view."""
        return shown.plot(self)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.panel()._repr_mimebundle_(**options)

    def _ipython_display_(self) -> None:
        """A panel leaves two outputs in a notebook: itself, and the still picture for when no kernel answers."""
        self.panel()._ipython_display_()


class Steppable(TraceCursor):
    """A function that stands on all ranks: what `kit.step(fn, *args, **kwargs)` returns, before the first line.

    Motions (`step`, `over`, `into`, `out`, `to_collective`, `to_line`, `finish`) move ranks and return the Position
    they came to, after at most `timeout` seconds; `ranks=[0, 2]` moves only some. `back`, `forward` and `seek` move
    through the record and touch no rank.
    """

    def step(self, ranks: Sequence[int] | None = None, timeout: float = PATIENCE) -> Position:
        """The next line of the learner's own code, or of the file the function lives in."""
        return self._move("step", ranks, timeout)

    def over(self, ranks: Sequence[int] | None = None, timeout: float = PATIENCE) -> Position:
        """The next line of the function in view, or of its callers; calls are passed over."""
        return self._move("over", ranks, timeout)

    def into(self, ranks: Sequence[int] | None = None, timeout: float = PATIENCE) -> Position:
        """The next line anywhere that can be stepped: inside a called function, if the line calls one."""
        return self._move("into", ranks, timeout)

    def out(self, ranks: Sequence[int] | None = None, timeout: float = PATIENCE) -> Position:
        """Until the function in view has returned to its caller."""
        return self._move("out", ranks, timeout)

    def to_collective(self, ranks: Sequence[int] | None = None, timeout: float = PATIENCE) -> Position:
        """Until the next operation (a collective, a send or a receive) is about to be issued."""
        return self._move("to_collective", ranks, timeout)

    def to_line(
        self, line: int, file: str | None = None, ranks: Sequence[int] | None = None, timeout: float = PATIENCE
    ) -> Position:
        """Until a line, numbered as the source view shows it, or the next one with code; `file` as a Source's file or
        label, by default the function's.
        """
        return self._move("to_line", ranks, timeout, line=line, file=file)

    def finish(self, ranks: Sequence[int] | None = None, timeout: float = PATIENCE) -> Position:
        """To the end."""
        return self._move("finish", ranks, timeout)

    @abstractmethod
    def _move(
        self, how: How, ranks: Sequence[int] | None, timeout: float, line: int = 0, file: str | None = None
    ) -> Position: ...

    @abstractmethod
    def reset(self) -> Position:
        """Stands before the first line again, with the original arguments."""

    @abstractmethod
    def before_reset(self, listener: Callable[[], None]) -> None:
        """Calls `listener()` whenever the record is about to be lost to a reset."""

    @abstractmethod
    def close(self) -> None:
        """Lets the ranks leave the function. The record stays."""

    @property
    @abstractmethod
    def results(self) -> list[Any]:
        """What the function returned, by rank. NotFinished, with the sentences, while a rank has not."""

    @abstractmethod
    def export(self, path: str | Path) -> Path:
        """Writes a plain script, without kit, that torchrun or mpiexec starts with the same function and arguments."""


class Replay(TraceCursor):
    """A saved record, without any cluster: `kit.load(path)`; back, forward, seek, state and panel as of a session."""

    def __init__(self, trace: Trace) -> None:
        if not trace.positions:
            raise ValueError("this trace has no positions to go through: it was recorded, not stepped")
        self._trace = trace
        self._position = 0

    @classmethod
    def load(cls, path: str | Path) -> Replay:
        """Opens what `trace.save(path)` wrote. ValueError for a file of another version or a broken one."""
        return cls(Trace.load(path))

    @property
    def trace(self) -> Trace:
        return self._trace

    @property
    def ended(self) -> str | None:
        return "a saved record"
