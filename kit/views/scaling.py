"""A scaling curve as two charts, tokens per second and efficiency over ranks, laid out once for every way of drawing.

Across, ranks are logarithmic, so that each doubling is a step as wide; upwards the charts are linear and begin at 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log2, log10

from kit.cost.scaling import Point, Scaling

Spot = tuple[float, float]  # (ranks, value)


@dataclass(frozen=True, slots=True)
class Dot:
    """One number of ranks: the median, and how far the steps spread."""

    ranks: int
    value: float
    low: float
    high: float
    told: str


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: dots that were measured, a line through them, what would be ideal, what a model predicts."""

    title: str
    dots: tuple[Dot, ...]
    ideal: tuple[Spot, ...]  # the most that the machine allows: below the straight line where ranks share cores
    predicted: tuple[Spot, ...]
    top: float
    ticks: tuple[tuple[float, str], ...]

    def up(self, value: float) -> float:
        """0 at the bottom, 1 at the top."""
        return value / self.top


@dataclass(frozen=True, slots=True)
class Board:
    """All that is drawn, and the same in words."""

    speed: Chart
    efficiency: Chart
    ranks: tuple[int, ...]  # marks of the axis across
    words: str

    def across(self, ranks: float) -> float:
        """0 at the fewest ranks, 1 at the most; in the middle for a single point."""
        low, high = log2(self.ranks[0]), log2(self.ranks[-1])
        return 0.5 if low == high else (log2(ranks) - low) / (high - low)


def board(scaling: Scaling, predicted: Scaling | None = None) -> Board:
    """What a plot of a curve shows, `predicted` drawn over it.

    Raises ValueError for a prediction of the other mode, whose curve would mean something else.
    """
    if predicted is not None and predicted.mode != scaling.mode:
        raise ValueError(f"a {predicted.mode} curve cannot be laid over a {scaling.mode} one: predict the same mode")
    first = scaling.points[0]
    each = first.tokens_per_second / first.ranks
    ideal = [(p.ranks, scaling.ceiling(p.ranks)) for p in scaling.points]
    guessed = () if predicted is None else predicted.points
    speeds = Chart(
        "tokens per second",
        tuple(_speed(scaling, p) for p in scaling.points),
        tuple((ranks, ranks * each * most) for ranks, most in ideal),
        tuple((p.ranks, p.tokens_per_second) for p in guessed),
        *_axis(
            max(
                *(p.tokens / min(p.times) for p in scaling.points),
                *(p.tokens_per_second for p in guessed),
                *(ranks * each * most for ranks, most in ideal),
            )
        ),
    )
    shares = () if predicted is None else tuple((p.ranks, predicted.efficiency(p)) for p in guessed)
    dots = tuple(_efficiency(scaling, p) for p in scaling.points)
    most_efficient = max(1.1, *(dot.high for dot in dots), *(share for _, share in shares))
    efficiencies = Chart("efficiency", dots, tuple(ideal), shares, most_efficient, _percents(most_efficient))
    ranks = tuple(sorted({p.ranks for p in (*scaling.points, *guessed)}))
    return Board(speeds, efficiencies, ranks, scaling_words(scaling, predicted))


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
    ranks = "1 rank" if point.ranks == 1 else f"{point.ranks} ranks"
    return f"{ranks} {point.tokens_per_second:,.0f} tokens/s, efficiency {scaling.efficiency(point):.0%}"


def _speed(scaling: Scaling, point: Point) -> Dot:
    low, high = point.tokens / max(point.times), point.tokens / min(point.times)
    return Dot(point.ranks, point.tokens_per_second, low, high, _told(scaling, point))


def _efficiency(scaling: Scaling, point: Point) -> Dot:
    share = scaling.efficiency(point)
    low, high = (share * point.seconds / seconds for seconds in (max(point.times), min(point.times)))
    return Dot(point.ranks, share, low, high, _told(scaling, point))


def _axis(most: float) -> tuple[float, tuple[tuple[float, str], ...]]:
    """(top, marks) of an axis from 0: round steps of 1, 2 or 5 times a power of ten, three to six of them."""
    power = 10.0 ** floor(log10(most))
    step = next(s * power for s in (0.2, 0.5, 1.0, 2.0) if most / (s * power) <= 6)
    count = ceil(most / step - 1e-9)
    return count * step, tuple((i * step, _count(i * step)) for i in range(count + 1))


def _percents(most: float) -> tuple[tuple[float, str], ...]:
    """Marks up to `most`, 25 % apart, or further where these would be more than seven."""
    step = next(step for step in (25 * 2**i for i in range(64)) if 100 * most / step < 7)
    return tuple((part / 100, f"{part} %") for part in range(0, floor(100 * most) + 1, step))


def _count(value: float) -> str:
    for unit, scale in (("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g}{unit}"
    return f"{value:.3g}"
