"""From a tensor fact to cells: the number shown, who contributed, what changed, what is on its way."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from kit.plot.moment import is_done, issued, pending, position_at
from kit.trace.text import canonical

if TYPE_CHECKING:
    from kit.trace.facts import Operation, Region, TensorFact
    from kit.trace.trace import Trace

_EXACT = 6  # characters that a number may take rather than lose digits that it has
Span = tuple[int, int, int]  # (storage, first element, one past the last)


@dataclass(frozen=True, slots=True)
class Cell:
    """One box in the picture: a chunk of a list, an element, or a whole tensor."""

    text: str  # the number, or the first numbers, at a fixed width
    digits: tuple[int, ...] = ()  # how often each rank contributed, by rank; () when the value does not say
    changed: bool = False  # since the position before
    sending: bool = False  # read by an operation under way
    awaiting: bool = False  # to be written by an operation under way
    writers: tuple[int, ...] = ()  # the ranks whose data an operation last put here
    whole: str = ""  # all values, for the tooltip


@dataclass(frozen=True, slots=True)
class Traffic:
    """Memory of one rank that operations touch at a position."""

    leaving: tuple[Span, ...]
    arriving: tuple[Span, ...]
    arrived: tuple[tuple[Span, tuple[int, ...]], ...]  # oldest first, with the ranks the data came from


def traffic(trace: Trace, position: int, rank: int) -> Traffic:
    """What is on its way to and from a rank's memory, and what came before."""
    state = position_at(trace, position).states[rank]
    under_way = pending(trace, position, rank)
    return Traffic(
        leaving=tuple(span_of(r) for op in under_way for r in op.regions if r.role in ("in", "inout")),
        arriving=tuple(span_of(r) for op in under_way for r in op.regions if r.role in ("out", "inout")),
        arrived=tuple(
            (span_of(region), _sources(op))
            for op in issued(trace, position, rank)
            if is_done(op, state) and op.error is None
            for region in op.regions
            if region.role in ("out", "inout")
        ),
    )


def cell(fact: TensorFact, before: TensorFact | None, flow: Traffic, world: int, decode: bool) -> Cell:
    """A whole tensor as one cell: its value when all elements agree, else the first few."""
    if fact.values is None:
        changed = before is not None and (before.summary, before.shape) != (fact.summary, fact.shape)
        return _placed(Cell(text=" × ".join(map(str, fact.shape)), changed=changed), span_of(fact), flow)
    values = fact.values.reshape(-1)
    old = before.values if before is not None else None
    changed = old is not None and not _same(old, fact.values)
    uniform = values.size > 0 and _same(values, np.full_like(values, values[0]))
    shown = values[:1] if uniform else values[:3]
    digits = contributors(values[0], world) if decode and values.size else ()
    text = " ".join(format_value(v, world if decode and digits else 0) for v in shown)
    text += " …" if not uniform and values.size > shown.size else ""
    whole = ", ".join(format_value(v) for v in values[:32]) + (", …" if values.size > 32 else "")
    base = Cell(text=text or "empty", digits=digits if uniform else (), changed=changed, whole=whole)
    return _placed(base, span_of(fact), flow)


def elements(
    fact: TensorFact, before: TensorFact | None, flow: Traffic, world: int, decode: bool, room: int = 0
) -> list[Cell]:
    """A small tensor as one cell per element, in storage order, each in `room` characters where that can be."""
    assert fact.values is not None
    values = fact.values.reshape(-1)
    old = before.values.reshape(-1) if before is not None and before.values is not None else None
    comparable = old is not None and old.shape == values.shape
    cells = []
    for i, value in enumerate(values):
        digits = contributors(value, world) if decode else ()
        base = Cell(
            text=format_value(value, world if digits else 0, room=room),
            digits=digits,
            changed=bool(comparable and not _same(old[i : i + 1], values[i : i + 1])),  # type: ignore[index]
            whole=format_value(value, precision=6),
        )
        at = fact.offset + i
        cells.append(_placed(base, (fact.storage, at, at + 1), flow))
    return cells


def contributors(value: float | complex, world: int) -> tuple[int, ...]:
    """How often each rank is in a sum of powers of ten: 101 among three ranks is (1, 0, 1); () if it is none."""
    if isinstance(value, complex | np.complexfloating) or not np.isfinite(value):
        return ()
    whole = int(value)
    if whole != value or not 0 < whole < 10**world:
        return ()
    return tuple(int(d) for d in reversed(f"{whole:0{world}d}"))


def began_with_powers(trace: Trace) -> bool:
    """Whether each rank r of at least two began with a tensor full of 10**r, so that digits name contributors."""
    first = [rank.stops[0].frames[-1].tensors if rank.stops and rank.stops[0].frames else () for rank in trace.ranks]
    if len(first) < 2:
        return False
    names = [{f.name for f in facts if _full_of(f, 10.0**rank)} for rank, facts in enumerate(first)]
    return bool(set.intersection(*names))


def format_value(value: float | complex, digits: int = 0, precision: int = 3, room: int = 0) -> str:
    """A number in few characters: whole ones padded to `digits` with zeros, others to `precision` digits, or exactly
    where that is hardly longer (277.75).

    With `room` as many of these digits as stay within so many characters, but one at least.
    """
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, complex | np.complexfloating):
        return f"{value:.{precision}g}"
    if not np.isfinite(value):
        return "nan" if np.isnan(value) else ("inf" if value > 0 else "-inf")
    if value == int(value) and (abs(value) < 1e6 or digits):
        return f"{int(value):0{digits}d}"
    if 1 <= abs(value) < 1e6 and len(exact := np.format_float_positional(value, trim="-")) <= min(
        room or _EXACT, _EXACT
    ):
        return exact
    written = [_short(value, count) for count in range(precision, 0, -1)]
    return next((text for text in written if len(text) <= room), written[-1]) if room else written[0]


def _short(value: float, precision: int) -> str:
    """'0.0123', '-1.2e-5': an exponent as people write it."""
    if 1e-3 <= abs(value) < 10**precision:
        return f"{value:.{precision}g}"
    digits = precision if abs(value) > 1 else precision - 1
    number, _, exponent = f"{value:.{max(0, digits - 1)}e}".partition("e")
    return f"{number}e{int(exponent)}"


def span_of(memory: TensorFact | Region) -> Span:
    """The memory a tensor or a region covers, taken as contiguous."""
    return memory.storage, memory.offset, memory.offset + prod(memory.shape)


def _placed(base: Cell, span: Span, flow: Traffic) -> Cell:
    writers: tuple[int, ...] = ()
    for region, sources in flow.arrived:
        if overlap(span, region):
            writers = sources
    return Cell(
        base.text,
        base.digits,
        base.changed,
        any(overlap(span, region) for region in flow.leaving),
        any(overlap(span, region) for region in flow.arriving),
        writers,
        base.whole,
    )


def _sources(op: Operation) -> tuple[int, ...]:
    name = canonical(op.name)
    if name == "recv":
        return () if op.peer is None else (op.peer,)
    return (op.root,) if name in ("broadcast", "scatter") and op.root is not None else op.ranks


def overlap(one: Span, other: Span) -> bool:
    """Whether two stretches of memory share an element."""
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape:
        return False
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc" and other.dtype.kind in "fc"))


def _full_of(fact: TensorFact, value: float) -> bool:
    return fact.values is not None and fact.values.size > 0 and bool((fact.values == value).all())
