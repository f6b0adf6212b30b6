"""A bandwidth sweep as curves: time and bus bandwidth over size, all axes logarithmic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, log10
from typing import TYPE_CHECKING

from kit.cost.network import bus_bandwidth
from kit.cost.sweep import Pair, Row, Sweep, as_link
from kit.plot.figure import DASHED, SOLID, Axes, Axis, Column, Dash, Dots, Figure, Line, Mark, Segments, values
from kit.trace.text import size_text, speed_text, time_text

if TYPE_CHECKING:
    from kit.cost.link import Fit

Point = tuple[float, float]
Curve = tuple[Point, ...]  # (bytes, seconds)
STEPS = 48  # points of a formula's line
_KEY = "dots: median and spread · line: fit of α and β"
_ROW, _HEAD, _AXIS = 132, 20, 24  # px


@dataclass(frozen=True, slots=True)
class Measured:
    """One operation: its rows, the line of its fit, what a link predicts; times in seconds."""

    operation: str
    rows: tuple[Row, ...]
    fit: Curve  # empty where sizes are too few
    predicted: Curve
    fitted: str  # the fit in few words, or why there is none
    told: str  # the same with its ranges


def bandwidth_figure(sweep: Sweep, operations: str | Sequence[str] | None = None, link: Pair | None = None) -> Figure:
    """Per operation: time on the left, bus bandwidth on the right, over size.

    Dots are medians with the spread of the repetitions, the line is the fit, the dashed one what `link` predicts.
    operations: all that were measured, unless named. Raises ValueError for an operation that was not measured, or a
    sweep without rows.
    """
    names = sweep.operations if operations is None else (operations,) if isinstance(operations, str) else operations
    if not names:
        raise ValueError("there is nothing to draw: this sweep has no rows")
    found = [_measured(sweep, name, link) for name in names]
    rows = [row for one in found for row in one.rows]
    sizes = _scale([row.nbytes for row in rows], size_text, whole=False)
    times = _scale([end for row in rows for end in (row.fastest, row.slowest)], time_text)
    speeds = _scale([_speed(row, row.nbytes, end) for row in rows for end in (row.fastest, row.slowest)], speed_text)
    left = tuple(Axes(sizes, times, _marks(one, _time), _ROW, _HEAD, _AXIS, f"{one.operation}: time") for one in found)
    right = tuple(
        Axes(sizes, speeds, _marks(one, _speed), _ROW, _HEAD, _AXIS, subtitle=f"bus bandwidth · {one.fitted}")
        for one in found
    )
    told = "" if link is None else "α = {}, 1/β = {}".format(*_in_units(as_link(link)))
    words = "\n".join(_words(one, bool(told)) for one in found) + (f"\npredicted with {told}" if told else "")
    note = _KEY + (" · dashed: predicted" if told else "")
    said = (f"Predicted with {told}.",) if told else ()
    return Figure("bandwidth", "Bandwidth", (Column(left, 62, 10), Column(right, 66, 16)), words, note=note, said=said)


def _measured(sweep: Sweep, name: str, link: Pair | None) -> Measured:
    rows = sweep.of(name)
    ends = rows[0].nbytes, rows[-1].nbytes
    fit: Curve = ()
    fitted = told = "no fit: measured at one size only"
    if ends[0] < ends[1]:
        found = sweep.fit(name)
        shown = "bandwidth does not show" if found.bandwidth == inf else speed_text(found.bandwidth)
        fit, fitted = _curve(sweep, name, found, ends), f"fit {time_text(found.latency)}, {shown}"
        told = _with_ranges(found) or fitted
    return Measured(name, rows, fit, () if link is None else _curve(sweep, name, link, ends), fitted, told)


def _with_ranges(fit: Fit) -> str:
    if fit.latencies is None or fit.bandwidths is None or inf in fit.bandwidths:
        return ""
    alphas, speeds = (
        " to ".join(map(text, ends)) for text, ends in ((time_text, fit.latencies), (speed_text, fit.bandwidths))
    )
    return f"fit {time_text(fit.latency)} ({alphas}), {speed_text(fit.bandwidth)} ({speeds})"


def _curve(sweep: Sweep, name: str, link: Pair, ends: tuple[int, int]) -> Curve:
    first, last = log10(ends[0]), log10(ends[1])
    sizes = [10 ** (first + (last - first) * i / STEPS) for i in range(STEPS + 1)]
    times = [sweep.predict(name, size, link=link) for size in sizes]
    return tuple((size, seconds) for size, seconds in zip(sizes, times, strict=True) if seconds > 0)


Drawn = Callable[[Row, float, float], float]  # what is drawn of so many bytes that take so many seconds


def _time(row: Row, nbytes: float, seconds: float) -> float:
    return seconds


def _speed(row: Row, nbytes: float, seconds: float) -> float:
    return bus_bandwidth(row.operation, row.ranks, nbytes, seconds)


def _marks(one: Measured, drawn: Drawn) -> tuple[Mark, ...]:
    rows, sizes = one.rows, values([row.nbytes for row in one.rows])
    medians, fastest, slowest = (
        values([drawn(row, row.nbytes, seconds) for row, seconds in zip(rows, times, strict=True)])
        for times in ([r.seconds for r in rows], [r.fastest for r in rows], [r.slowest for r in rows])
    )
    return (
        *(_line(one, one.predicted, drawn, "muted", "predicted", DASHED)),
        *(_line(one, one.fit, drawn, "communicate", one.told, SOLID)),
        Segments(sizes, fastest, sizes, slowest, "communicate", weak=True),
        Dots(sizes, medians, "communicate", [_told(row) for row in rows]),
    )


def _line(one: Measured, curve: Curve, drawn: Drawn, role: str, told: str, dash: Dash) -> tuple[Line, ...]:
    if not curve:
        return ()
    heights = [drawn(one.rows[0], size, seconds) for size, seconds in curve]
    return (Line(values([size for size, _ in curve]), values(heights), role, told, dash, weak=role != "muted"),)


def _scale(numbers: Sequence[float], label: Callable[[float], str], whole: bool = True) -> Axis:
    """A logarithmic axis over whole decades, or over what is there where that is less; six marks at most."""
    low, high = log10(min(numbers)), log10(max(numbers))
    if whole:
        low, high = floor(low + 1e-9), ceil(high - 1e-9)
    if high - low < 0.5:  # one size, or all alike
        low, high = low - 0.5, high + 0.5
    margin = 0.0 if whole else 0.03 * (high - low)
    low, high = low - margin, high + margin
    powers = range(ceil(low - 1e-9), floor(high + 1e-9) + 1)
    every = ceil(len(powers) / 6)
    ticks = tuple((10.0**power, label(10.0**power)) for power in powers if power % every == 0)
    return Axis(10**low, 10**high, ticks, log=True, grid=whole)


def _told(row: Row) -> str:
    spread = f"{time_text(row.seconds)} ({time_text(row.fastest)} to {time_text(row.slowest)})"
    return f"{row.operation}, {size_text(row.nbytes)}: {spread}, busbw {speed_text(row.busbw)}"


def _words(one: Measured, predicted: bool) -> str:
    first, last = one.rows[0], one.rows[-1]
    words = f"{one.operation}: {size_text(first.nbytes)} in {time_text(first.seconds)}"
    if last is not first:
        words += f", {size_text(last.nbytes)} in {time_text(last.seconds)}"
    words += f", busbw up to {speed_text(max(row.busbw for row in one.rows))}; {one.told}"
    if predicted and one.predicted:
        ends = [row.seconds / point[1] for row, point in ((first, one.predicted[0]), (last, one.predicted[-1]))]
        words += f"; measured over predicted: {ends[0]:.2g} x"
        words += f" at the smallest, {ends[1]:.2g} x at the largest" if last is not first else ""
    return words


def _in_units(link: tuple[float, float]) -> tuple[str, str]:
    return time_text(link[0]), speed_text(link[1])
