"""Slower links between ranks, as plain data: they travel to the ranks with the function to run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kit.trace.text import speed_text, time_text


@dataclass(frozen=True)
class Links:
    """Which links are slow, and how.

    latency: s. bandwidth: bytes/s. pairs: the pairs of ranks (lower first) whose link this is; None means all.
    collectives: for a name and a number of ranks the rounds and the volume, in units of the whole buffer. board: the
    file in which ranks tell each other of their transfers.
    """

    latency: float
    bandwidth: float
    pairs: frozenset[tuple[int, int]] | None = None
    collectives: Mapping[str, Mapping[int, tuple[float, float]]] = field(default_factory=dict)
    board: str = ""

    def of(self, folder: Path) -> Links:
        """The same for ranks whose private folder is this one."""
        return replace(self, board=str(folder / "links"))

    def between(self, one: int, other: int) -> bool:
        return self.pairs is None or (min(one, other), max(one, other)) in self.pairs

    def among(self, ranks: tuple[int, ...]) -> bool:
        """Whether a collective of these ranks crosses a slow link."""
        return any(self.between(a, b) for a in ranks for b in ranks if a < b)

    def in_words(self) -> str:
        """'links throttled to 1 ms latency and 100 MB/s', for the notes of a trace."""
        parts = [f"{time_text(self.latency)} latency"] if self.latency else []
        parts += [speed_text(self.bandwidth)] if self.bandwidth < math.inf else []
        where = "links" if self.pairs is None else "links between nodes"
        return f"{where} throttled to {' and '.join(parts)}"
