"""A scaling curve: how many tokens per second ranks train together, measured or predicted, in the same table.

Strong scaling shares one batch among more and more ranks; weak scaling gives each rank as much as a single one had.
Efficiency means the same for both: the tokens per second of each rank, over those of each rank where the curve begins
(G. Amdahl 1967 and J. Gustafson 1988 gave the two their reasons).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import kit
from kit.cost import network
from kit.cost.overlap import overlap
from kit.cost.simulate import Algorithm
from kit.cost.sweep import time_text
from kit.cost.table import html_table, text_table

Mode = Literal["strong", "weak"]
MODES = ("strong", "weak")
ABOVE = 1.15  # times what the machine allows: more than timing's ordinary scatter
BACKWARD = 2 / 3  # of a step's computing: backward takes four of six flops (`kit.cost.training.flops_per_token`)


@dataclass(frozen=True, slots=True)
class Point:
    """One number of ranks: the tokens all of them train on in a step, and how long steps took, in seconds."""

    ranks: int
    tokens: int
    times: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """The median."""
        return median(self.times)

    @property
    def tokens_per_second(self) -> float:
        """Of all ranks together, at the median time."""
        return self.tokens / self.seconds


@dataclass(frozen=True)
class Scaling:
    """A curve from few ranks to many. `str()` is a table, a notebook shows it as one."""

    mode: Mode
    points: tuple[Point, ...]  # fewest ranks first
    cores: int | None = None  # of the host, where ranks compute on its CPU; None: they have accelerators
    threads: int = 1  # that each rank computes with
    predicted: bool = False
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        counts = [point.ranks for point in self.points]
        if self.mode not in MODES or not counts or counts != sorted(set(counts)):
            raise ValueError("a curve is 'strong' or 'weak' and has a point for each number of ranks, fewest first")
        if not all(point.tokens >= 1 and point.times and point.seconds > 0 for point in self.points):
            raise ValueError("every point of a curve has tokens, and the times of its steps, above 0 s")

    def efficiency(self, point: Point) -> float:
        """Tokens per second of each rank over those of each rank at the first point; 1 where nothing is lost."""
        first = self.points[0]
        return (point.tokens_per_second / point.ranks) / (first.tokens_per_second / first.ranks)

    def speedup(self, point: Point) -> float:
        """Tokens per second over those at the first point."""
        return point.tokens_per_second / self.points[0].tokens_per_second

    def ceiling(self, ranks: int) -> float:
        """The highest efficiency that the cores allow: below 1 where ranks take turns on them."""
        return at_most(self.cores, self.threads, ranks) / at_most(self.cores, self.threads, self.points[0].ranks)

    def machine(self) -> str:
        """What the machine's cores allow, in a sentence; and a second where more than that was measured."""
        above = [point for point in self.points if self.efficiency(point) > ABOVE * self.ceiling(point.ranks)]
        if self.predicted or not above:
            return self._allows()
        return (
            f"{self._allows()} More was measured on {_count(above[0].ranks, 'rank')}: the machine was probably busy"
            f" with something else while {_count(self.points[0].ranks, 'rank')} had its turn. Run it again."
        )

    def _allows(self) -> str:
        if self.cores is None:
            return "Ranks compute on accelerators: what is lost is communication, and waiting for the slowest."
        has = _count(self.cores, "core")
        needs = f"a rank computes with {_count(self.threads, 'thread')}"
        free, most = max(1, self.cores // self.threads), self.points[-1].ranks
        if most <= free:
            return f"This machine has {has} and {needs}: no two of {_count(most, 'rank')} share one."
        return (
            f"This machine has {has} and {needs}: beyond {_count(free, 'rank')} they share, so {most} ranks can reach"
            f" an efficiency of {self.ceiling(most):.0%} at most, whatever the code."
        )

    def plot(self, predicted: Scaling | None = None) -> Any:
        """Tokens per second and efficiency over ranks, with what `predicted` says; words outside a notebook.

        `kit.views.scaling_plot` makes the same as a Bokeh figure.
        """
        return kit.plot_of(self, predicted)

    def __str__(self) -> str:
        return text_table(self._title(), self._rows(), (self.machine(), *self.notes))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(self._title(), self._rows(), (self.machine(), *self.notes))

    def _title(self) -> str:
        shared = "one batch shared by all ranks" if self.mode == "strong" else "the same batch for each rank"
        return f"{'Predicted' if self.predicted else 'Measured'} {self.mode} scaling: {shared}"

    def _rows(self) -> list[list[str]]:
        head = ["ranks", "tokens/step", "step", "tokens/s", "speed-up", "efficiency"]
        return [head] + [
            [
                str(point.ranks),
                f"{point.tokens:,}",
                time_text(point.seconds),
                f"{point.tokens_per_second:,.0f}",
                f"{self.speedup(point):.2f}",
                f"{self.efficiency(point):.0%}",
            ]
            for point in self.points
        ]


def predicted_scaling(
    *,
    tokens: int,
    seconds: float,
    nbytes: float,
    ranks: Sequence[int],
    latency: float,
    bandwidth: float,
    mode: Mode = "weak",
    buckets: int = 1,
    cores: int | None = None,
    threads: int = 1,
    algorithm: Algorithm = network.ring_all_reduce,
) -> Scaling:
    """What data parallel training should reach, from a step of a single rank: `tokens` in so many `seconds`.

    nbytes: of all gradients, all-reduced in so many equal `buckets` while backward goes on (`kit.cost.overlap`), which
    is two thirds of the computing. latency in s, bandwidth in bytes/s of each rank's link. cores: where all ranks share
    one host's, computing slows down once they take turns; None: it does not. Ranks that wait for one another, and
    communication that takes cores from computing, are left out, so this is a bound from above. Raises ValueError for
    a strong curve whose tokens the ranks cannot share evenly, and for what makes no sense.
    """
    whole = [tokens, buckets, threads, *ranks, *([] if cores is None else [cores])]
    if not (seconds > 0 and ranks and all(number >= 1 for number in whole)):
        raise ValueError("give a step's time above 0 s, and tokens, buckets, ranks, cores and threads of 1 or more")
    points = []
    for n in ranks:
        if mode == "strong" and tokens % n:
            raise ValueError(f"{tokens} tokens cannot be shared evenly by {n} ranks")
        alone = seconds / n if mode == "strong" else seconds
        computing = alone * at_most(cores, threads, 1) / at_most(cores, threads, n)
        shown = overlap(
            [nbytes / buckets] * buckets,
            backward=BACKWARD * computing,
            ranks=n,
            latency=latency,
            bandwidth=bandwidth,
            algorithm=algorithm,
        )
        points.append(Point(n, tokens if mode == "strong" else tokens * n, (computing + shown.exposed,)))
    link = f"predicted: latency {latency * 1e6:g} µs, bandwidth {bandwidth / 1e9:g} GB/s, {_count(buckets, 'bucket')}"
    return Scaling(mode, tuple(points), cores, threads, True, (link,))


def at_most(cores: int | None, threads: int, ranks: int) -> float:
    """The part of its threads that each rank has a core for, at most 1."""
    return 1.0 if cores is None else min(1.0, cores / (threads * ranks))


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
