"""The face that everything with a record and a position in it has: live sessions, replays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kit
from kit.trace.facts import Position, Trace


class Reading:
    """Going back and forward through a trace. Subclasses supply `trace`."""

    _position: int

    @property
    def trace(self) -> Trace:
        raise AssertionError("a reading has a trace")

    @property
    def live(self) -> bool:
        return False

    @property
    def ended(self) -> str | None:
        return None

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
        `lambda trace: kit.cost.predict(trace, latency=1e-4, bandwidth=1e9)`.
        """
        return kit.panel_of(self, predicted)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.panel()._repr_mimebundle_(**options)

    def _ipython_display_(self) -> None:
        """A panel leaves two outputs in a notebook: itself, and the still picture for when no kernel answers."""
        self.panel()._ipython_display_()
