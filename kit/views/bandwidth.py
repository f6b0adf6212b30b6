"""A bandwidth sweep as curves: time and bus bandwidth over size, laid out once for every way of drawing it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, log10

from kit.cost.network import bus_bandwidth
from kit.cost.sweep import Pair, Sweep, as_link, size_text, speed_text, time_text

Point = tuple[float, float]
STEPS = 48  # points of a formula's line


@dataclass(frozen=True, slots=True)
class Dot:
    """One size of one operation: the median, and how far the repetitions spread."""

    nbytes: float
    value: float
    low: float
    high: float
    told: str


@dataclass(frozen=True, slots=True)
class Scale:
    """A logarithmic axis over whole decades, or over what is there where that is less."""

    low: float
    high: float
    label: Callable[[float], str]

    def share(self, value: float) -> float:
        """0 at the low end, 1 at the high end."""
        return (log10(value) - log10(self.low)) / (log10(self.high) - log10(self.low))

    def marks(self) -> list[tuple[float, str]]:
        """(value, label) of every power of ten on it, thinned to six at most."""
        powers = range(ceil(log10(self.low) - 1e-9), floor(log10(self.high) + 1e-9) + 1)
        every = ceil(len(powers) / 6)
        return [(10.0**power, self.label(10.0**power)) for power in powers if power % every == 0]


@dataclass(frozen=True, slots=True)
class Curves:
    """One operation, in time and in bus bandwidth."""

    operation: str
    time: tuple[Dot, ...]
    speed: tuple[Dot, ...]
    fit: tuple[tuple[Point, ...], tuple[Point, ...]]  # of the time, of the speed; empty where sizes are too few
    predicted: tuple[tuple[Point, ...], tuple[Point, ...]]
    fitted: str  # the fit in words, or why there is none


@dataclass(frozen=True, slots=True)
class Board:
    """All that is drawn: a row per operation, all rows on the same axes."""

    curves: tuple[Curves, ...]
    size: Scale
    time: Scale
    speed: Scale
    link: str  # what the prediction was made with, '' for none

    def words(self) -> str:
        """The picture in words: each operation's ends, its fit, and how the prediction compares."""
        return "\n".join(_told(curves, bool(self.link)) for curves in self.curves) + (
            f"\npredicted with {self.link}" if self.link else ""
        )


def board(sweep: Sweep, operations: str | Sequence[str] | None = None, link: Pair | None = None) -> Board:
    """What a plot of a sweep shows. operations: all that were measured, unless named; link: predicts, if given.

    Raises ValueError for an operation that was not measured, or a sweep without rows.
    """
    names = sweep.operations if operations is None else (operations,) if isinstance(operations, str) else operations
    if not names:
        raise ValueError("there is nothing to draw: this sweep has no rows")
    curves = tuple(_curves(sweep, name, link) for name in names)
    dots = [dot for one in curves for dot in one.time]
    speeds = [dot for one in curves for dot in one.speed]
    told = "" if link is None else "α = {:.3g} µs, 1/β = {:.3g} GB/s".format(*_in_units(as_link(link)))
    return Board(
        curves,
        _scale([dot.nbytes for dot in dots], size_text, whole=False),
        _scale([end for dot in dots for end in (dot.low, dot.high)], time_text),
        _scale([end for dot in speeds for end in (dot.low, dot.high)], speed_text),
        told,
    )


def bandwidth_words(sweep: Sweep, operations: str | Sequence[str] | None = None, link: Pair | None = None) -> str:
    """The plot in words."""
    return board(sweep, operations, link).words()


def _in_units(link: tuple[float, float]) -> tuple[float, float]:
    return link[0] * 1e6, link[1] / 1e9


def _curves(sweep: Sweep, name: str, link: Pair | None) -> Curves:
    rows = sweep.of(name)
    time, speed = [], []
    for row in rows:
        spread = (
            f"{size_text(row.nbytes)}: {time_text(row.seconds)} ({time_text(row.fastest)} to {time_text(row.slowest)})"
        )
        told = f"{name}, {spread}, busbw {speed_text(row.busbw)}"
        time.append(Dot(row.nbytes, row.seconds, row.fastest, row.slowest, told))
        slow, fast = (bus_bandwidth(name, row.ranks, row.nbytes, seconds) for seconds in (row.slowest, row.fastest))
        speed.append(Dot(row.nbytes, row.busbw, slow, fast, told))
    ends = rows[0].nbytes, rows[-1].nbytes
    fitted, said = None, "no fit: measured at one size only"
    if ends[0] < ends[1]:
        fitted = sweep.fit(name)
        said = f"fit {fitted.latency * 1e6:.3g} µs, " + _bandwidth_words(fitted.bandwidth)
    lines = [_line(sweep, name, pair, ends) if pair is not None else ((), ()) for pair in (fitted, link)]
    return Curves(name, tuple(time), tuple(speed), lines[0], lines[1], said)


def _bandwidth_words(bandwidth: float) -> str:
    return "bandwidth does not show" if bandwidth == inf else speed_text(bandwidth)


def _line(sweep: Sweep, name: str, link: Pair, ends: tuple[int, int]) -> tuple[tuple[Point, ...], tuple[Point, ...]]:
    first, last = log10(ends[0]), log10(ends[1])
    sizes = [10 ** (first + (last - first) * i / STEPS) for i in range(STEPS + 1)]
    times = [sweep.predict(name, size, link=link) for size in sizes]
    pairs = [(size, seconds) for size, seconds in zip(sizes, times, strict=True) if seconds > 0]
    return tuple(pairs), tuple((size, bus_bandwidth(name, sweep.ranks, size, seconds)) for size, seconds in pairs)


def _scale(values: Sequence[float], label: Callable[[float], str], whole: bool = True) -> Scale:
    low, high = log10(min(values)), log10(max(values))
    if whole:
        low, high = floor(low + 1e-9), ceil(high - 1e-9)
    if high - low < 0.5:  # one size, or all alike
        low, high = low - 0.5, high + 0.5
    margin = 0.0 if whole else 0.03 * (high - low)
    return Scale(10 ** (low - margin), 10 ** (high + margin), label)


def _told(curves: Curves, predicted: bool) -> str:
    first, last = curves.time[0], curves.time[-1]
    words = f"{curves.operation}: {size_text(first.nbytes)} in {time_text(first.value)}"
    if last is not first:
        words += f", {size_text(last.nbytes)} in {time_text(last.value)}"
    words += f", busbw up to {speed_text(max(dot.value for dot in curves.speed))}; {curves.fitted}"
    if predicted and curves.predicted[0]:
        ends = [dot.value / line[1] for dot, line in ((first, curves.predicted[0][0]), (last, curves.predicted[0][-1]))]
        words += f"; measured over predicted: {ends[0]:.2g} x"
        words += f" at the smallest, {ends[1]:.2g} x at the largest" if last is not first else ""
    return words
