"""A scaling curve as two charts: tokens per second and efficiency over ranks.

Across, ranks are logarithmic, so that each doubling is a step as wide; upwards the charts are linear and begin at 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import TYPE_CHECKING

from kit.plot.figure import DASHED, DOTTED, Axes, Axis, Column, Dots, Figure, Line, Mark, Segments, values
from kit.trace.text import counted

if TYPE_CHECKING:
    from kit.topics.data_parallel.scaling import Point, Scaling

_CHART, _HEAD, _AXIS = 156, 20, 34  # px
_KEY = "dots: median and spread · dashed: machine's limit"
Curve = Sequence[tuple[int, float]]  # (ranks, value)


def scaling_figure(measured: Scaling, predicted: Scaling | None = None) -> Figure:
    """Tokens per second on the left, efficiency on the right, over ranks.

    Dots are medians with the spread of the steps, joined by a line; the grey dashed line is the most that the machine
    allows, below the straight line where ranks share cores. The dotted one is what `predicted` says. Raises ValueError
    for a prediction of the other mode, whose curve would mean something else.
    """
    if predicted is not None and predicted.mode != measured.mode:
        raise ValueError(f"a {predicted.mode} curve cannot be laid over a {measured.mode} one: predict the same mode")
    points, guessed = measured.points, predicted.points if predicted is not None else ()
    across = _ranks(sorted({point.ranks for point in (*points, *guessed)}))

    first = points[0]
    each = first.tokens_per_second / first.ranks
    most = [(point.ranks, measured.ceiling(point.ranks)) for point in points]
    spread = [(point.tokens / max(point.times), point.tokens / min(point.times)) for point in points]
    speed = _chart(
        measured,
        across,
        "tokens per second",
        [point.tokens_per_second for point in points],
        spread,
        ideal=[(ranks, ranks * each * share) for ranks, share in most],
        guess=[(point.ranks, point.tokens_per_second) for point in guessed],
    )
    shares = [measured.efficiency(point) for point in points]
    seconds = [point.seconds for point in points]
    efficiency = _chart(
        measured,
        across,
        "efficiency",
        shares,
        [(s * t / max(p.times), s * t / min(p.times)) for p, s, t in zip(points, shares, seconds, strict=True)],
        ideal=most,
        guess=[(point.ranks, predicted.efficiency(point)) for point in guessed] if predicted is not None else [],
        percent=True,
    )
    note = _KEY + (" · dotted: predicted" if predicted is not None else "")
    title, words = f"{measured.mode.capitalize()} scaling", scaling_words(measured, predicted)
    columns = Column((speed,), 52, 14), Column((efficiency,), 58, 24)
    return Figure("scaling", title, columns, words, note=note, said=(measured.machine(),))


def scaling_words(scaling: Scaling, predicted: Scaling | None = None) -> str:
    """The curve in words: each number of ranks, what the machine allows, and how the prediction compares."""
    head = f"{scaling.mode} scaling, {'predicted' if scaling.predicted else 'measured'}"
    lines = [f"{head}: {_told(scaling, scaling.points[0])}"]
    lines += [_told(scaling, point) for point in scaling.points[1:]]
    lines.append(scaling.machine())
    if predicted is not None:
        lines += [f"predicted: {_told(predicted, point)}" for point in predicted.points]
    return "\n".join(lines)


def _told(scaling: Scaling, point: Point) -> str:
    ranks = counted(point.ranks, "rank")
    return f"{ranks} {point.tokens_per_second:,.0f} tokens/s, efficiency {scaling.efficiency(point):.0%}"


def _chart(
    measured: Scaling,
    across: Axis,
    title: str,
    dots: Sequence[float],
    spread: Sequence[tuple[float, float]],
    ideal: Curve,
    guess: Curve,
    percent: bool = False,
) -> Axes:
    top = max([*(high for _, high in spread), *(value for _, value in (*ideal, *guess))])
    upward = _percents(max(1.1, top)) if percent else _counts(top)
    ranks, medians = values([point.ranks for point in measured.points]), values(dots)
    lows, highs = values(spread).T
    marks: tuple[Mark, ...] = (
        *_line(ideal, "muted", "the most that the machine allows", DASHED),
        *_line(guess, "compute", "predicted", DOTTED),
        Line(ranks, medians, "compute", weak=True),
        Segments(ranks, lows, ranks, highs, "compute", weak=True),
        Dots(ranks, medians, "compute", [_told(measured, point) for point in measured.points]),
    )
    return Axes(across, upward, marks, _CHART, head=_HEAD, foot=_AXIS, title=title)


def _line(curve: Curve, role: str, told: str, dash: tuple[int, ...]) -> tuple[Line, ...]:
    return (Line(values([x for x, _ in curve]), values([y for _, y in curve]), role, told, dash),) if curve else ()


def _ranks(counts: Sequence[int]) -> Axis:
    """Each count of ranks has its mark; a single one stands in the middle."""
    beside = 1.08 if len(counts) > 1 else 2
    ticks = tuple((float(ranks), str(ranks)) for ranks in counts)
    return Axis(counts[0] / beside, counts[-1] * beside, ticks, label="ranks", log=True)


def _counts(most: float) -> Axis:
    """Round steps of 1, 2 or 5 times a power of ten, three to six of them."""
    power = 10.0 ** floor(log10(most))
    step = next(s * power for s in (0.2, 0.5, 1.0, 2.0) if most / (s * power) <= 6)
    count = ceil(most / step - 1e-9)
    return Axis(0.0, count * step, tuple((i * step, _count(i * step)) for i in range(count + 1)), grid=True)


def _percents(most: float) -> Axis:
    """Marks 25 % apart, or further where these would be more than seven."""
    step = next(step for step in (25 * 2**i for i in range(64)) if 100 * most / step < 7)
    marks = ((part / 100, f"{part} %") for part in range(0, floor(100 * most) + 1, step))
    return Axis(0.0, most, tuple(marks), grid=True)


def _count(value: float) -> str:
    for unit, scale in (("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g}{unit}"
    return f"{value:.3g}"
