"""What ranks held over a run, as stacked areas by kind of memory, and in words.

Across, moments stand in their order, each as wide as the other: accounting slows a run down unevenly, so its times
would say little. Upwards, all plots share one axis in bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, floor
from typing import TYPE_CHECKING, Any

import numpy as np

from kit.plot.figure import LIMITS, Axes, Axis, Column, Dash, Figure, Line, Stack, values
from kit.plot.timeline import round_step
from kit.trace.memory import KINDS, MODEL, Holdings, total
from kit.trace.text import listed, size_text

if TYPE_CHECKING:
    from kit.trace.facts import MemorySample, Pass

Formula = float | Mapping[str, float]  # bytes; or several of them, each with its name
Named = tuple[tuple[str, float], ...]
MOST_RANKS = 8  # that are drawn; the words have all of them
STEPS = 240  # of a plot that are drawn apart
WORKSPACES = "Workspaces: what cuBLAS keeps for its products; no tensor lies there. "
_LEFT, _GAP, _HEAD, _LINE, _PASSES = 52, 10, 20, 14, 18  # px
_TALL, _LOW = 104, 62  # px of a plot: up to four ranks, and more


def memory_figure(
    measured: Holdings | Mapping[str, Holdings], formula: Formula | Mapping[str, Formula] | None = None
) -> Figure:
    """A column for each run, a plot for each rank, one axis in bytes; dashed lines are what formulas say.

    formula: bytes, or name -> bytes; for several runs a mapping from the run's name to that. Raises ValueError for a
    formula of a run that there is not, and for nothing to draw.
    """
    runs = {"": measured} if isinstance(measured, Holdings) else dict(measured)
    if not runs or not any(own for one in runs.values() for own in one.ranks):
        raise ValueError("there is nothing to draw: give `run.holdings` of a run with memory=True, or name -> that")
    lines = {name: _lines(name, runs, formula) for name in runs}
    columns = memory_columns(runs, lines)
    told = [f"{name}, {line}" if name else line for name, one in runs.items() for line in _words(one, lines[name])]
    methods = ", ".join(dict.fromkeys(one.method for one in runs.values()))
    kept = WORKSPACES if any("workspaces" in one.kinds for one in runs.values()) else ""
    said = (*told, f"Bytes: {methods}. {kept}Across: operations in their order.")
    return Figure("memory", "Memory by rank", columns, "\n".join(said), memory_key(runs), said=said)


def memory_columns(
    runs: Mapping[str, Holdings], lines: Mapping[str, Named], only: str | None = None
) -> tuple[Column, ...]:
    """The plots of each run, or of one alone: to the scale and of the size that all of them need."""
    held = [float(total(held)) for one in runs.values() for own in one.ranks for held in own]
    top = 1.2 * max([*held, *(size for named in lines.values() for _, size in named)]) or 1.0  # room for a rank's name
    step = round_step(top, 4)
    marks = [i * step for i in range(floor(top / step) + 1)]
    upward = Axis(0.0, top, tuple((mark, size_text(mark)) for mark in marks), grid=True)
    unnamed = replace(upward, ticks=tuple((mark, "") for mark in marks))
    many = max(len(one.ranks) for one in runs.values()) > 4
    head, kinds = _HEAD + _LINE * max(map(len, lines.values())), [kind for kind, _ in memory_key(runs)]
    columns: list[Column] = []
    for name in runs if only is None else (only,):
        column = _column(runs[name], lines[name], kinds, unnamed if columns else upward, _LOW if many else _TALL)
        first = replace(column[0], head=head, title=name, limits=tuple(_limits(lines[name])))
        columns.append(Column((first, *column[1:]), _GAP if columns else _LEFT, _GAP))
    return tuple(columns)


def _column(one: Holdings, lines: Named, kinds: Sequence[str], upward: Axis, height: float) -> tuple[Axes, ...]:
    both = values([0, 1])
    limits = [
        Line(both, values([size, size]), "ink", told, dash)
        for (_, size), (dash, told) in zip(lines, _limits(lines), strict=True)
    ]
    return tuple(
        Axes(
            Axis(0.0, 1.0, zoom=True, stretches=_passes(one, rank)),
            upward,
            (_stack(one, rank, kinds), *limits),
            height,
            foot=_PASSES,
            corner=f"rank {rank}",
        )
        for rank in range(min(len(one.ranks), MOST_RANKS))
    )


def _limits(lines: Named) -> list[tuple[Dash, str]]:
    """(dash, words) of each formula."""
    return [
        (LIMITS[min(number, len(LIMITS) - 1)], f"{name} = {size_text(size)}")
        for number, (name, size) in enumerate(lines)
    ]


def memory_key(runs: Mapping[str, Holdings]) -> tuple[tuple[str, str], ...]:
    """The kinds of memory that any of the runs held, from the bottom up; words that leave a narrow figure its title."""
    return tuple(
        (kind, kind.removeprefix("communication ")) for kind in KINDS if any(kind in one.kinds for one in runs.values())
    )


def _lines(name: str, runs: Mapping[str, Holdings], formula: Any) -> Named:
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


def _stack(holdings: Holdings, rank: int, kinds: Sequence[str]) -> Stack:
    """The account of a rank in at most `STEPS` steps; of those drawn as one, the fullest."""
    own, passes = holdings.ranks[rank], holdings.passes[rank]
    each = max(1, ceil(len(own) / STEPS))
    edges, told = [0.0], []
    tops: list[list[int]] = []
    for first in range(0, len(own), each):
        held = max(own[first : first + each], key=total)
        end, top = min(first + each, len(own)) / len(own), [total(held, kinds[: i + 1]) for i in range(len(kinds))]
        if tops and tops[-1] == top:
            edges[-1] = end
        else:
            edges.append(end)
            tops.append(top)
            told.append(_told(rank, held, kinds, passes))
    return Stack(values(edges), np.array(tops, dtype=np.float64).reshape(-1, len(kinds)).T, tuple(kinds), told)


def _passes(holdings: Holdings, rank: int) -> tuple[tuple[str, float, float], ...]:
    times = [held.time for held in holdings.ranks[rank]]
    count = max(1, len(times))
    return tuple(
        (p.name, bisect_left(times, p.start) / count, bisect_left(times, p.end) / count) for p in holdings.passes[rank]
    )


def _told(rank: int, held: MemorySample, kinds: Sequence[str], passes: Sequence[Pass]) -> str:
    parts = ", ".join(f"{kind} {size_text(size)}" for kind in kinds if (size := total(held, (kind,))))
    within = next((f" ({p.name})" for p in passes if p.start <= held.time <= p.end), "")
    return f"rank {rank} after {held.label}{within}: {size_text(total(held))}" + (f" = {parts}" if parts else "")


def _words(holdings: Holdings, lines: Named) -> list[str]:
    """A sentence for each rank, one for all where they held the same."""
    told: dict[str, list[int]] = {}
    for rank in range(len(holdings.ranks)):
        told.setdefault(_sentence(holdings, rank, lines), []).append(rank)
    if len(told) == 1 and len(holdings.ranks) > 1:
        return [f"every rank: {next(iter(told))}"]
    return [f"{listed(ranks)}: {text}" for text, ranks in told.items()]


def _sentence(holdings: Holdings, rank: int, lines: Named) -> str:
    peak, model = holdings.peak(rank), holdings.peak(rank, MODEL)
    parts = ", ".join(f"{kind} {size_text(size)}" for kind, size in peak.parts)
    where = f", in {peak.within}" if peak.within else ""
    text = f"at most {size_text(peak.nbytes)}{where} ({parts}). "
    text += f"Parameters, gradients and optimizer state together: at most {size_text(model.nbytes)}"
    for name, size in lines:
        ratio = f" ({model.nbytes / size:.2f} x that was measured)" if size else ""
        text += f"; {name} = {size_text(size)}{ratio}"
    return f"{text}."
