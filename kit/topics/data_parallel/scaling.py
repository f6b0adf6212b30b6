"""A scaling curve: how many tokens per second ranks train together, timed inside the ranks, or predicted.

Strong scaling shares one batch among more and more ranks; weak scaling gives each rank as much as a single one had.
Efficiency means the same for both: the tokens per second of each rank, over those of each rank where the curve begins
(G. Amdahl 1967 and J. Gustafson 1988 gave the two their reasons).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import torch

from kit import shown
from kit.cost import network
from kit.gpt.data import Batch
from kit.gpt.loop import Wrap, training
from kit.gpt.model import GPT, GPTConfig
from kit.run.options import Options
from kit.tables import Rows, Table
from kit.topics.data_parallel.cost import predicted_overlap
from kit.topics.data_parallel.reference import BucketedDDP
from kit.trace.text import counted, time_text

if TYPE_CHECKING:
    from kit.cost.network import Algorithm
    from kit.gpt.data import Batch
    from kit.run.runner import Runner

shown.look_in("kit.topics.data_parallel.panels")

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


@dataclass(frozen=True, repr=False)
class Scaling(Table):
    """A curve from few ranks to many, read as a table."""

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
        if not (self.threads >= 1 and (self.cores is None or self.cores >= 1)):
            raise ValueError(f"cores and threads are 1 or more, not {self.cores} and {self.threads}")

    def efficiency(self, point: Point) -> float:
        """Tokens per second of each rank over those of each rank at the first point; 1 where nothing is lost."""
        first = self.points[0]
        return (point.tokens_per_second / point.ranks) / (first.tokens_per_second / first.ranks)

    def speedup(self, point: Point) -> float:
        """Tokens per second over those at the first point."""
        return point.tokens_per_second / self.points[0].tokens_per_second

    def ceiling(self, ranks: int) -> float:
        """The highest efficiency that the cores allow: below 1 where ranks take turns on them."""
        return self._of_a_core(ranks) / self._of_a_core(self.points[0].ranks)

    def _of_a_core(self, ranks: int) -> float:
        """The part of its threads that each rank has a core for, at most 1."""
        return 1.0 if self.cores is None else min(1.0, self.cores / (self.threads * ranks))

    def predict(
        self,
        nbytes: float,
        *,
        latency: float,
        bandwidth: float,
        ranks: Sequence[int] | None = None,
        buckets: int = 1,
        algorithm: Algorithm = network.ring_all_reduce,
    ) -> Scaling:
        """The curve that theory gives from this one's first point, which must be a single rank: `plot` lays it over.

        nbytes: of all gradients, all-reduced in so many equal `buckets` while backward goes on (`predicted_overlap`),
        which is two thirds of the computing. latency in s, bandwidth in bytes/s of each rank's link. ranks: None takes
        those of this curve. Computing slows down where ranks take turns on cores. Ranks that wait for one another, and
        communication that takes cores from computing, are left out, so this is a bound from above. Raises ValueError
        for a curve that begins with several ranks, and for a strong one whose tokens the ranks cannot share evenly.
        """
        alone, counts = self.points[0], [point.ranks for point in self.points] if ranks is None else ranks
        if alone.ranks != 1:
            raise ValueError(f"a prediction starts from one rank, this curve with {alone.ranks}: measure one too")
        if not (counts and all(n >= 1 for n in counts) and buckets >= 1):
            raise ValueError(f"give ranks and buckets of 1 or more, not {list(counts)} and {buckets}")
        points = []
        for n in counts:
            if self.mode == "strong" and alone.tokens % n:
                raise ValueError(f"{alone.tokens} tokens cannot be shared evenly by {n} ranks")
            computing = alone.seconds / self.ceiling(n) / (n if self.mode == "strong" else 1)
            sent = predicted_overlap(
                [nbytes / buckets] * buckets,
                backward=BACKWARD * computing,
                ranks=n,
                latency=latency,
                bandwidth=bandwidth,
                algorithm=algorithm,
            )
            tokens = alone.tokens * (1 if self.mode == "strong" else n)
            points.append(Point(n, tokens, (computing + sent.exposed,)))
        link = f"latency {latency * 1e6:g} µs, bandwidth {bandwidth / 1e9:g} GB/s, {counted(buckets, 'bucket')}"
        return Scaling(self.mode, tuple(points), self.cores, self.threads, True, (f"predicted: {link}",))

    def machine(self) -> str:
        """What the machine's cores allow, in a sentence; and a second where more than that was measured."""
        above = [point for point in self.points if self.efficiency(point) > ABOVE * self.ceiling(point.ranks)]
        if self.predicted or not above:
            return self._allows()
        return (
            f"{self._allows()} More was measured on {counted(above[0].ranks, 'rank')}: the machine was probably busy"
            f" with something else while {counted(self.points[0].ranks, 'rank')} had its turn. Run it again."
        )

    def _allows(self) -> str:
        if self.cores is None:
            return "Ranks compute on accelerators: what is lost is communication, and waiting for the slowest."
        has = counted(self.cores, "core")
        needs = f"a rank computes with {counted(self.threads, 'thread')}"
        free, most = max(1, self.cores // self.threads), self.points[-1].ranks
        if most <= free:
            return f"This machine has {has} and {needs}: no two of {counted(most, 'rank')} share one."
        return (
            f"This machine has {has} and {needs}: beyond {counted(free, 'rank')} they share, so {most} ranks can reach"
            f" an efficiency of {self.ceiling(most):.0%} at most, whatever the code."
        )

    def plot(self, predicted: Scaling | None = None) -> Any:
        """Tokens per second and efficiency over ranks, with what `predicted` says; words outside a notebook."""
        return shown.plot(self, predicted)

    def table(self) -> tuple[str, Rows, Sequence[str]]:
        shared = "one batch shared by all ranks" if self.mode == "strong" else "the same batch for each rank"
        title = f"{'Predicted' if self.predicted else 'Measured'} {self.mode} scaling: {shared}"
        rows = [
            (
                str(point.ranks),
                f"{point.tokens:,}",
                time_text(point.seconds),
                f"{point.tokens_per_second:,.0f}",
                f"{self.speedup(point):.2f}",
                f"{self.efficiency(point):.0%}",
            )
            for point in self.points
        ]
        head = ("ranks", "tokens/step", "step", "tokens/s", "speed-up", "efficiency")
        return title, [head, *rows], (self.machine(), *self.notes)


def measure_scaling(
    cluster: Runner,
    work: Callable[..., tuple[int, Sequence[float], int]],
    batch: int,
    *args: Any,
    mode: Mode = "weak",
    ranks: Sequence[int] | None = None,
) -> Scaling:
    """Runs `work(batch of this rank, *args)` on the first k ranks, for each k of `ranks`, and compares.

    work: returns (tokens of a step, seconds of each step, threads), as `timed_training` does. batch: of
    each rank for 'weak'; of all together for 'strong', so each of k ranks gets batch / k. ranks: None takes 1, 2, 4 and
    so on, and the whole cluster; for 'strong', those that divide the batch. A step ends with its slowest rank.

    Raises ValueError for an unknown mode, ranks that the cluster does not have, and a strong batch that k does not
    divide.
    """
    if mode not in MODES:
        raise ValueError(f"mode is 'strong' (one batch, shared) or 'weak' (as much for each rank), not {mode!r}")
    counts = _counts(cluster.size, batch, mode) if ranks is None else tuple(ranks)
    _check(counts, cluster.size, batch, mode)
    points, threads = [], 1
    for k in counts:
        found = Options(ranks=k, cluster=cluster).record(work, batch // k if mode == "strong" else batch, *args).results
        tokens = sum(one[0] for one in found)
        times = tuple(max(step) for step in zip(*(one[1] for one in found), strict=True))
        points.append(Point(k, tokens, times))
        threads = max(threads, *(one[2] for one in found))
    return Scaling(mode, tuple(points), _cores(cluster.devices), threads, notes=_notes(cluster.devices))


def timed_training(
    batch: int,
    config: GPTConfig,
    steps: int = 5,
    warm_up: int = 2,
    wrap: Wrap | None = BucketedDDP,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> tuple[int, list[float], int]:
    """Trains on this rank with `batch` windows of a whole block in each step, tokens drawn at random.

    Returns (tokens of a step on this rank, seconds of each of `steps`, threads it computes with). `warm_up` steps come
    before, untimed. wrap: what averages gradients over the ranks; None: nothing does, each rank trains alone. Reading
    is left out: the tokens are there before the clock starts.
    """
    draw = torch.Generator().manual_seed(seed)
    shape = (batch, config.block_size + 1)
    pairs = torch.randint(config.vocab_size, shape, generator=draw, device="cpu").to(device)  # (B, T + 1)
    one: Batch = (pairs[:, :-1], pairs[:, 1:])  # 2 x (B, T)
    going = training(GPT(config, device), iter([one] * (warm_up + steps)), steps=warm_up + steps, rate=1e-3, wrap=wrap)
    for _ in range(warm_up):
        next(going)
    times = []
    for _ in range(steps):
        began = perf_counter()
        next(going)  # its loss and norm are numbers already, so a device has finished with it
        times.append(perf_counter() - began)
    return batch * config.block_size, times, torch.get_num_threads()


def _cores(devices: Sequence[str]) -> int | None:
    """Of this host, where ranks compute on its CPU."""
    return len(os.sched_getaffinity(0)) if set(devices) == {"cpu"} else None


def _notes(devices: Sequence[str]) -> tuple[str, ...]:
    used = len(set(devices))
    if set(devices) == {"cpu"} or used == len(devices):
        return ()
    return (f"{len(devices)} ranks share {used} accelerators: beyond {used} ranks they take turns.",)


def _counts(size: int, batch: int, mode: Mode) -> tuple[int, ...]:
    doubled = {2**i for i in range(size.bit_length()) if 2**i <= size} | {size}
    return tuple(sorted(k for k in doubled if mode == "weak" or batch % k == 0))


def _check(counts: Sequence[int], size: int, batch: int, mode: Mode) -> None:
    if not counts or list(counts) != sorted(set(counts)) or not 1 <= counts[0] <= counts[-1] <= size:
        raise ValueError(f"ranks are different numbers from 1 to {size}, the smallest first, not {list(counts)}")
    uneven = [k for k in counts if mode == "strong" and batch % k]
    if uneven or batch < 1:
        raise ValueError(
            f"a batch of {batch} cannot be shared evenly by {(uneven or counts)[0]} ranks: choose a multiple"
        )
