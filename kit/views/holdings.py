"""What ranks held over a run, as stacked areas: laid out once for every way of drawing it, and said in words.

Across, moments stand in their order, each as wide as the other: accounting slows a run down unevenly, so its times
would say little. Upwards, all panels share one axis in bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

from kit.trace.facts import Holding, Pass
from kit.trace.holdings import KINDS, MODEL, Holdings, total
from kit.trace.sentences import listed
from kit.views.bars import round_step

Formula = float | Mapping[str, float]  # bytes; or several of them, each with its name
MOST_RANKS = 8  # that are drawn; the words have all of them
COLUMNS = 240  # moments of a panel that are drawn apart


@dataclass(frozen=True, slots=True)
class Moment:
    """One step of the areas: from `start` to `end` of a panel's width (0 to 1), bytes up to the top of each kind."""

    start: float
    end: float
    tops: tuple[int, ...]  # of `Board.kinds`, from the bottom up
    told: str


@dataclass(frozen=True, slots=True)
class Stretch:
    """A pass on a panel: 'forward' from `start` to `end` of its width."""

    name: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Panel:
    rank: int
    moments: tuple[Moment, ...]
    passes: tuple[Stretch, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """One run: a panel for each rank, lines of its formulas (name, bytes), its words."""

    name: str
    panels: tuple[Panel, ...]
    lines: tuple[tuple[str, float], ...]
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Board:
    columns: tuple[Column, ...]
    kinds: tuple[str, ...]  # from the bottom up
    top: float  # bytes at the upper end of the axis
    marks: tuple[tuple[float, str], ...]
    method: str

    @property
    def rows(self) -> int:
        """The most panels that stand one below the other."""
        return max(len(column.panels) for column in self.columns)

    def words(self) -> str:
        """The picture in words: for each run what each rank held at most, and how that compares with the formula."""
        told = [f"{column.name}, {line}" if column.name else line for column in self.columns for line in column.words]
        return "\n".join([*told, f"Bytes: {self.method}. Across: operations in their order."])


def board(measured: Holdings | Mapping[str, Holdings], formula: Formula | Mapping[str, Formula] | None = None) -> Board:
    """What a picture of holdings shows: a column for each run, a panel for each rank.

    formula: bytes, or name -> bytes; for several runs a mapping from the run's name to that. Raises ValueError for a
    formula of a run that there is not, and for nothing to draw.
    """
    runs = {"": measured} if isinstance(measured, Holdings) else dict(measured)
    if not runs or not any(own for one in runs.values() for own in one.ranks):
        raise ValueError("there is nothing to draw: give what kit.memory(function, ...) returns, or name -> that")
    lines = {name: _lines(name, runs, formula) for name in runs}
    kinds = tuple(kind for kind in KINDS if any(kind in one.kinds for one in runs.values()))
    held = [float(total(held)) for one in runs.values() for own in one.ranks for held in own]
    most = max([*held, *(size for named in lines.values() for _, size in named)])
    top = 1.2 * most or 1.0  # room for the name of a rank
    step = round_step(top, 4)
    marks = tuple((i * step, bytes_text(i * step)) for i in range(floor(top / step) + 1))
    columns = tuple(
        Column(
            name,
            tuple(_panel(one, rank, kinds) for rank in range(min(len(one.ranks), MOST_RANKS))),
            lines[name],
            tuple(_words(one, lines[name])),
        )
        for name, one in runs.items()
    )
    methods = dict.fromkeys(one.method for one in runs.values())
    return Board(columns, kinds, top, marks, ", ".join(methods))


def holdings_words(
    measured: Holdings | Mapping[str, Holdings], formula: Formula | Mapping[str, Formula] | None = None
) -> str:
    """The picture in words."""
    return board(measured, formula).words()


def bytes_text(nbytes: float) -> str:
    """Bytes as a person reads them, decimal units, three digits: '1.25 MB', '48 kB', '0'."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= scale:
            return f"{nbytes / scale:.3g} {unit}"
    return f"{nbytes:.0f} B" if nbytes else "0"


def _lines(name: str, runs: Mapping[str, Holdings], formula: Any) -> tuple[tuple[str, float], ...]:
    if formula is None:
        return ()
    if name:
        unknown = [key for key in formula if key not in runs] if isinstance(formula, Mapping) else [formula]
        if unknown:
            raise ValueError(f"a formula is given for {unknown[0]!r}, the runs are {', '.join(runs)}: use their names")
        formula = formula.get(name)
    if formula is None:
        return ()
    named = formula if isinstance(formula, Mapping) else {"formula": formula}
    return tuple((str(key), float(size)) for key, size in named.items())


def _panel(holdings: Holdings, rank: int, kinds: Sequence[str]) -> Panel:
    own, passes = holdings.ranks[rank], holdings.passes[rank]
    count = max(1, len(own))
    moments: list[Moment] = []
    each = max(1, ceil(count / COLUMNS))
    for first in range(0, len(own), each):
        held = max(own[first : first + each], key=total)
        start, end = first / count, min(first + each, count) / count
        tops, told = _tops(held, kinds), _told(rank, held, kinds, passes)
        if moments and moments[-1].tops == tops:
            before = moments.pop()
            start, told = before.start, before.told
        moments.append(Moment(start, end, tops, told))
    times = [held.time for held in own]
    stretches = [
        Stretch(p.name, bisect_left(times, p.start) / count, bisect_left(times, p.end) / count) for p in passes
    ]
    return Panel(rank, tuple(moments), tuple(stretches))


def _tops(held: Holding, kinds: Sequence[str]) -> tuple[int, ...]:
    return tuple(total(held, kinds[: i + 1]) for i in range(len(kinds)))


def _told(rank: int, held: Holding, kinds: Sequence[str], passes: Sequence[Pass]) -> str:
    parts = ", ".join(f"{kind} {bytes_text(size)}" for kind in kinds if (size := total(held, (kind,))))
    within = next((f" ({p.name})" for p in passes if p.start <= held.time <= p.end), "")
    return f"rank {rank} after {held.label}{within}: {bytes_text(total(held))}" + (f" = {parts}" if parts else "")


def _words(holdings: Holdings, lines: Sequence[tuple[str, float]]) -> list[str]:
    """A sentence for each rank, one for all where they held the same."""
    told: dict[str, list[int]] = {}
    for rank in range(len(holdings.ranks)):
        told.setdefault(_sentence(holdings, rank, lines), []).append(rank)
    if len(told) == 1 and len(holdings.ranks) > 1:
        return [f"every rank: {next(iter(told))}"]
    return [f"{listed(ranks)}: {text}" for text, ranks in told.items()]


def _sentence(holdings: Holdings, rank: int, lines: Sequence[tuple[str, float]]) -> str:
    peak, model = holdings.peak(rank), holdings.peak(rank, MODEL)
    parts = ", ".join(f"{kind} {bytes_text(size)}" for kind, size in peak.parts)
    where = f", in {peak.within}" if peak.within else ""
    text = f"at most {bytes_text(peak.nbytes)}{where} ({parts}). "
    text += f"Parameters, gradients and optimizer state together: at most {bytes_text(model.nbytes)}"
    for name, size in lines:
        ratio = f" ({model.nbytes / size:.2f} x that was measured)" if size else ""
        text += f"; {name} = {bytes_text(size)}{ratio}"
    return f"{text}."
