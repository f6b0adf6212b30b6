"""Latency and bandwidth out of measured times: least squares on the formula that the times should follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import median

import numpy as np
import numpy.typing as npt

from kit.cost import network
from kit.cost.network import USUAL, Algorithm


@dataclass(frozen=True, slots=True)
class Link:
    """The two numbers of the alpha-beta model. `str()`: 'α = 42 µs, 1/β = 0.9 GB/s'."""

    latency: float  # s, alpha
    bandwidth: float  # bytes per second, 1/beta

    def __str__(self) -> str:
        return f"α = {self.latency * 1e6:.3g} µs, 1/β = {self.bandwidth / 1e9:.3g} GB/s"


@dataclass(frozen=True, slots=True)
class Fit(Link):
    """A link as the times of one operation on n ranks tell it, if that operation runs as `formula` says."""

    operation: str
    ranks: int
    formula: str  # the name in kit.cost.network
    error: float  # median of |formula - measured| / measured
    note: str = ""  # why a number is at its bound
    latencies: tuple[float, float] | None = None  # s: where alpha lies, in nine of ten drawings of the repetitions
    bandwidths: tuple[float, float] | None = None  # bytes per second: the same of 1/beta

    def __str__(self) -> str:
        more = f"; {self.note}" if self.note else ""
        return f"{self.operation} on {self.ranks} ranks: {self.words}, typically {self.error:.0%} off{more}"

    @property
    def words(self) -> str:
        """'α = 42 µs (31 to 60), 1/β = 0.9 GB/s (0.8 to 1.1)'; without the ranges where they are not known."""
        if self.latencies is None or self.bandwidths is None or inf in self.bandwidths:
            return Link.__str__(self)
        low, high = (seconds * 1e6 for seconds in self.latencies)
        slow, fast = (speed / 1e9 for speed in self.bandwidths)
        return (
            f"α = {self.latency * 1e6:.3g} µs ({low:.3g} to {high:.3g}), "
            f"1/β = {self.bandwidth / 1e9:.3g} GB/s ({slow:.3g} to {fast:.3g})"
        )


def formula_of(operation: str) -> Algorithm:
    """The usual algorithm of a collective, or of a message ('send'), in the face of `kit.cost.network`.

    Raises ValueError for an operation that none is known for.
    """
    if operation in ("send", "recv"):
        return message
    if operation not in USUAL:
        raise ValueError(f"no formula is known for {operation!r}: choose one of send, {', '.join(USUAL)}")
    return USUAL[operation]


def message(n: int, nbytes: float, latency: float, bandwidth: float) -> float:
    """a + S b, however many ranks there are."""
    return network.message(nbytes, latency, bandwidth)


def fit_link(
    operation: str, ranks: int, sizes: Sequence[float], seconds: Sequence[float], formula: Algorithm | None = None
) -> Fit:
    """Latency and bandwidth so that the formula comes closest to the measured times.

    sizes: whole buffers S in bytes; seconds: how long each took. formula: another one than `formula_of(operation)`.
    Every formula is p(n) alpha + q(n) S beta, so this is linear least squares. The *relative* errors are made small: a
    wrong millisecond counts for nothing in a long transfer and for everything in a short one. Neither number comes out
    negative: where the best one would be, it is set to its bound (alpha 0, or beta 0 with an infinite bandwidth), the
    other is fitted again, and `note` says so.

    Raises ValueError for fewer than two sizes, times that are not positive, or a single rank.
    """
    rule = formula or formula_of(operation)
    if len(sizes) != len(seconds):
        raise ValueError(f"{len(sizes)} sizes and {len(seconds)} times: give one time for each size")
    if len(set(sizes)) < 2:
        raise ValueError(f"two unknowns need at least two sizes, {operation} has {len(set(sizes))}")
    if min(seconds) <= 0:
        raise ValueError("times must be above 0 s")
    rounds, volume = rule(ranks, 0, 1.0, 1.0), rule(ranks, 1, 0.0, 1.0)
    if rounds == 0 or volume == 0:
        raise ValueError(f"{operation} on {ranks} ranks sends nothing by this formula, so it says nothing of a link")
    times = np.asarray(seconds, dtype=float)
    columns = np.stack([np.full(len(times), rounds), volume * np.asarray(sizes, dtype=float)], axis=1) / times[:, None]
    alpha, beta, note = _not_negative(columns)
    off = [abs(1 - float(row @ (alpha, beta))) for row in columns]
    name = getattr(rule, "__name__", "formula")
    return Fit(alpha, 1 / beta if beta > 0 else float("inf"), operation, ranks, name, median(off), note)


def with_ranges(fit: Fit, drawn: Sequence[Fit]) -> Fit:
    """A fit with the ranges in which nine of ten others lie that were made from repetitions drawn anew."""

    def middle(numbers: Sequence[float]) -> tuple[float, float]:
        ordered = sorted(numbers)
        return ordered[round(0.05 * (len(ordered) - 1))], ordered[round(0.95 * (len(ordered) - 1))]

    return replace(fit, latencies=middle([f.latency for f in drawn]), bandwidths=middle([f.bandwidth for f in drawn]))


def _not_negative(columns: npt.NDArray[np.float64]) -> tuple[float, float, str]:
    """The alpha, beta >= 0 for which columns @ (alpha, beta) comes nearest to 1, and what had to be held."""
    target = np.ones(len(columns))
    scale = np.linalg.norm(columns, axis=0)  # seconds and seconds per byte differ by many powers of ten
    alpha, beta = np.linalg.lstsq(columns / scale, target, rcond=None)[0] / scale
    if alpha >= 0 and beta > 0:
        return float(alpha), float(beta), ""
    held = 0 if alpha < 0 else 1
    free = columns[:, 1 - held]
    value = float(free @ target / (free @ free))
    if held == 0:
        return 0.0, value, "latency does not show at these sizes"
    return value, 0.0, "bandwidth does not show at these sizes"
