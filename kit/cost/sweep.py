"""What a bandwidth sweep found: rows of plain numbers, and what follows from them.

S, algbw and busbw are those of nccl-tests (doc/PERFORMANCE.md): S the whole buffer, algbw = S / t, busbw = algbw x the
factor of `kit.cost.network.bus_factor`. GB = 10**9 bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from kit import shown
from kit.cost import network
from kit.cost.link import Fit, Link, fit_link, formula_of, with_ranges
from kit.cost.network import Algorithm
from kit.tables import html_table, text_table
from kit.trace.text import size_text, speed_text, time_text

VERSION = 1
DRAWINGS = 100
Pair = Link | tuple[float, float]  # latency in s, bandwidth in bytes per second
_HEADS = ("operation", "size", "median", "fastest", "slowest", "algbw", "busbw")


@dataclass(frozen=True, slots=True)
class Row:
    """One operation at one size. A time goes from the last rank's call to the last rank's end, in seconds."""

    operation: str
    ranks: int
    nbytes: int  # S, the whole buffer
    times: tuple[float, ...]  # of each repetition
    by_rank: tuple[float, ...]  # the median of each rank's own times, waiting for the others included

    @property
    def seconds(self) -> float:
        """The median."""
        return median(self.times)

    @property
    def fastest(self) -> float:
        return min(self.times)

    @property
    def slowest(self) -> float:
        return max(self.times)

    @property
    def algbw(self) -> float:
        """Algorithm bandwidth in bytes per second, at the median time."""
        return network.algorithm_bandwidth(self.nbytes, self.seconds)

    @property
    def busbw(self) -> float:
        """Bus bandwidth in bytes per second, at the median time: comparable between operations and numbers of ranks."""
        return network.bus_bandwidth(self.operation, self.ranks, self.nbytes, self.seconds)


@dataclass(frozen=True)
class Sweep:
    """Times of collectives over sizes on one cluster. `str()` is a table, a notebook shows it as one."""

    ranks: int
    backend: str
    devices: tuple[str, ...]
    rows: tuple[Row, ...]
    repeats: int
    warm_up: int
    started: str = ""  # ISO 8601, UTC
    software: str = ""
    notes: tuple[str, ...] = ()  # what a reader must know: interrupted, a throttled link, what the times contain
    about: str = ""  # of one that was recorded elsewhere, that it is

    @property
    def operations(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.operation for row in self.rows))

    def of(self, operation: str) -> tuple[Row, ...]:
        """The rows of one operation, smallest first. Raises ValueError for one that was not measured."""
        found = sorted((row for row in self.rows if row.operation == operation), key=lambda row: row.nbytes)
        if not found:
            raise ValueError(f"{operation!r} was not measured; there is {', '.join(self.operations) or 'nothing'}")
        return tuple(found)

    def fit(self, operation: str, formula: Algorithm | None = None) -> Fit:
        """Latency and bandwidth by which the operation's formula comes closest to its median times, with the range of
        each: how much they vary when the repetitions of every size are drawn anew (a bootstrap, of DRAWINGS).

        See `kit.cost.link.fit_link`. Where the library runs another algorithm, hand its formula in
        (`kit.cost.network.tree_all_reduce`, ...). Raises ValueError for an operation not measured at two sizes.
        """
        rows, chance = self.of(operation), Random(0)
        drawn = [
            self._fit(rows, [median(chance.choices(row.times, k=len(row.times))) for row in rows], formula)
            for _ in range(DRAWINGS)
        ]
        return with_ranges(self._fit(rows, [row.seconds for row in rows], formula), drawn)

    def _fit(self, rows: Sequence[Row], seconds: Sequence[float], formula: Algorithm | None) -> Fit:
        return fit_link(rows[0].operation, self.ranks, [row.nbytes for row in rows], seconds, formula)

    def predict(
        self,
        operation: str,
        nbytes: float,
        ranks: int | None = None,
        link: Pair | None = None,
        formula: Algorithm | None = None,
    ) -> float:
        """Seconds that the operation's formula gives for `nbytes` on `ranks` ranks (as many as here, unless said).

        link: whose latency and bandwidth are used, a fit or (s, bytes per second); None takes this operation's own fit.
        """
        rows = self.of(operation) if link is None else ()
        own = self._fit(rows, [row.seconds for row in rows], formula) if link is None else link
        latency, bandwidth = as_link(own)
        return (formula or formula_of(operation))(self.ranks if ranks is None else ranks, nbytes, latency, bandwidth)

    def plot(self, operations: str | Sequence[str] | None = None, link: Pair | None = None) -> Any:
        """Time and bus bandwidth over size, both axes logarithmic, with the fit; and what `link` predicts, dashed.

        A widget in a notebook, words elsewhere; `kit.plot.bandwidth_figure` describes the picture.
        """
        return shown.plot(self, operations, link)

    def save(self, path: str | Path) -> Path:
        """Writes JSON that `load` reads back exactly."""
        target = Path(path)
        target.write_text(json.dumps({"lockstep-sweep": VERSION, **asdict(self)}, indent=1) + "\n", encoding="utf-8")
        return target

    @staticmethod
    def load(path: str | Path) -> Sweep:
        """Reads what `save` wrote. Raises ValueError for another version, or a file that is no sweep."""
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
            version = found.pop("lockstep-sweep")
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ValueError(f"{path} is not a sweep that Sweep.save wrote") from error
        if version != VERSION:
            raise ValueError(f"{path} is a sweep of version {version}, this Lockstep reads version {VERSION}")
        try:
            rows = tuple(Row(**{**row, **_tuples(row, "times", "by_rank")}) for row in found.pop("rows"))
            return Sweep(rows=rows, **{**found, **_tuples(found, "devices", "notes")})
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} is a broken sweep: {error}") from error

    def __str__(self) -> str:
        return text_table(self._title(), self._table(), self.notes)

    def __repr__(self) -> str:  # what a notebook without HTML, and papermill, show
        return str(self)

    def _repr_html_(self) -> str:
        return f"<div class='ls-sweep'>{html_table(self._title(), self._table(), self.notes)}</div>"

    def _table(self) -> list[tuple[str, ...]]:
        return [_HEADS, *(_cells(row) for row in self.rows)]

    def _title(self) -> str:
        kinds = "/".join(dict.fromkeys(device.partition(":")[0] for device in self.devices))
        return f"{self.ranks} ranks, {self.backend}, {kinds} · {self.repeats} repetitions · GB = 10^9 bytes"


def as_link(link: Pair) -> tuple[float, float]:
    """(latency in s, bandwidth in bytes per second) of a fit, or of the pair itself."""
    return (link.latency, link.bandwidth) if isinstance(link, Link) else link


def _cells(row: Row) -> tuple[str, ...]:
    times = (time_text(seconds) for seconds in (row.seconds, row.fastest, row.slowest))
    speeds = (speed_text(speed) for speed in (row.algbw, row.busbw))
    return (row.operation, size_text(row.nbytes), *times, *speeds)


def _tuples(found: dict[str, Any], *names: str) -> dict[str, tuple[Any, ...]]:
    return {name: tuple(found[name]) for name in names}
