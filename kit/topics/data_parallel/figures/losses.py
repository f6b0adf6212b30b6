"""Losses of several trainings over the same text, as lines in one chart: which got further with it.

Curves of different lengths share the axis: each is cut into the same number of parts, and a spot is the mean over one
part, so that all spots stand for as much text. Lines are told apart by their dashes and by the name at their end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import ceil, floor, isfinite

from kit.plot.figure import DASHES, SOLID, Axes, Axis, Column, Figure, Line, Mark, values
from kit.plot.layout import apart

PARTS = 10
_HIGH, _HEAD, _AXIS, _LEFT, _NAMES, _LINE = 210, 10, 34, 46, 184, 15  # px; room for the names; between two of them
_BEND, _SAMPLE, _END = (1.015, 1.03), (1.035, 1.09), 1.1  # parts of the text: where a line is led to its name


@dataclass(frozen=True, slots=True)
class Curve:
    """One training: the mean loss of each part, as far as losses were numbers, and what is said of it."""

    name: str
    spots: tuple[float, ...]
    parts: int  # of the text; with fewer spots it ended in something that is no number

    @property
    def told(self) -> str:
        if not self.spots:
            return f"{self.name}: not a number"
        return f"{self.name}: {self.spots[-1]:.2f}" + ("" if len(self.spots) == self.parts else ", then not a number")


def loss_figure(found: Mapping[str, Sequence[float]], parts: int = PARTS) -> Figure:
    """A chart of named losses, step by step, in nats for a character; a name for each.

    Raises ValueError for no curves, for one with fewer than two steps, and for more curves than there are dashes.
    """
    curves = curves_of(found, parts)
    spots = [spot for curve in curves for spot in curve.spots] or [0.0, 1.0]
    low, high = floor(4 * min(spots)) / 4, ceil(4 * max(spots)) / 4
    upward = Axis(low, max(high, low + 0.25), grid=True)
    quarters = tuple((quarter / 4, f"{25 * quarter} %") for quarter in range(1, 5))
    ends = {i: _HIGH * (1 - float(upward.share(c.spots[-1]))) if c.spots else 0.0 for i, c in enumerate(curves)}
    levels = {i: upward.high - y / _HIGH * (upward.high - upward.low) for i, y in apart(ends, _HIGH, _LINE).items()}
    axes = Axes(
        Axis(0.0, _END, quarters, label="text read"),
        Axis(upward.low, upward.high, tuple((m, f"{m:g}") for m in _marks(upward.low, upward.high)), grid=True),
        tuple(mark for i, curve in enumerate(curves) for mark in _drawn(curve, DASHES[i], levels[i])),
        _HIGH,
        head=_HEAD,
        foot=_AXIS,
        right=tuple((levels[i], curve.told) for i, curve in enumerate(curves)),
    )
    note = f"nats for a character, a mean over each {_each(curves)} of the text"
    return Figure("losses", "Loss over the text read", (Column((axes,), _LEFT, _NAMES),), loss_words(curves), note=note)


def curves_of(found: Mapping[str, Sequence[float]], parts: int = PARTS) -> tuple[Curve, ...]:
    """Every training as at most `parts` spots. Raises as `loss_figure`."""
    short = [name for name, losses in found.items() if len(losses) < 2]
    if not found or short or len(found) > len(DASHES):
        wrong = f"{short[0]!r} has fewer than two steps" if short else f"there are {len(found)}"
        raise ValueError(f"a chart takes one to {len(DASHES)} curves, each of two steps or more; {wrong}")
    count = min(parts, *map(len, found.values()))
    return tuple(_curve(name, losses, count) for name, losses in found.items())


def loss_words(curves: Sequence[Curve]) -> str:
    """Where every curve began and ended."""
    head = f"loss over the text read, means over {_each(curves)} of it"
    return "\n".join([head, *(f"from {c.spots[0]:.2f}, {c.told}" if c.spots else c.told for c in curves)])


def _each(curves: Sequence[Curve]) -> str:
    most = max(len(curve.spots) for curve in curves)
    return f"1/{most}" if most else "parts"


def _curve(name: str, losses: Sequence[float], count: int) -> Curve:
    cuts = [round(part * len(losses) / count) for part in range(count + 1)]
    means = [sum(losses[a:b]) / (b - a) for a, b in zip(cuts, cuts[1:], strict=False)]
    return Curve(name, tuple(takewhile(isfinite, means)), count)


def _drawn(curve: Curve, dash: tuple[int, ...], level: float) -> tuple[Mark, ...]:
    """The line, and a piece of it beside its name, joined by a thin one."""
    count = len(curve.spots)
    sample = Line(values(_SAMPLE), values([level, level]), "ink", curve.told, dash)
    if not count:
        return (sample,)
    x, y = values([(part + 1) / curve.parts for part in range(count)]), values(curve.spots)
    lead = Line(values([x[-1], *_BEND]), values([y[-1], y[-1], level]), "ruler", dash=SOLID)
    return Line(x, y, "ink", curve.told, dash), lead, sample


def _marks(low: float, high: float) -> list[float]:
    """Round values between, three to seven of them."""
    step = next(step for step in (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 1e9) if (high - low) / step <= 6)
    first = ceil(low / step - 1e-9)
    return [round(k * step, 9) for k in range(first, floor(high / step + 1e-9) + 1)]
