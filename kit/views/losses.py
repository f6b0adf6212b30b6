"""Losses of several trainings over the same text, as lines in one chart: which got further with it.

Curves of different lengths share the axis: each is cut into the same number of parts, and a spot is the mean over one
part, so that all spots stand for as much text. Lines are told apart by their dashes and by the name at their end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import ceil, floor, isfinite

from kit.views.curve_svg import WIDTH, Picture
from kit.views.markup import escape, heading
from kit.views.style import standalone_style, stylesheet

PARTS = 10
_TOP, _HIGH, _AXIS, _LEFT, _NAMES, _LINE = 10, 210, 34, 46, 236, 15  # px; room for the names; between two of them
_DASHES = ("", "2 3", "7 4", "12 3 2 3", "4 2")


@dataclass(frozen=True, slots=True)
class Curve:
    """One training: the mean loss of each part, as far as losses were numbers, and what is said of it."""

    name: str
    spots: tuple[float, ...]
    whole: bool  # False: it ended in something that is no number

    @property
    def told(self) -> str:
        if not self.spots:
            return f"{self.name}: not a number"
        return f"{self.name}: {self.spots[-1]:.2f}" + ("" if self.whole else ", then not a number")


def loss_picture(losses: Mapping[str, Sequence[float]], parts: int = PARTS) -> Picture:
    """A chart of named losses, step by step; a name for each. Words outside a notebook.

    Raises ValueError for no curves, for one with fewer than two steps, and for more curves than there are dashes.
    """
    curves = curves_of(losses, parts)
    text, svg = loss_words(curves), _svg(curves)
    opening, rest = svg.split(">", 1)
    page = f'<div class="ls">{heading("Loss over the text read", _KEY.format(_each(curves)))}{svg}</div>'
    return Picture(f"<style>{stylesheet()}</style>{page}", f"{opening}><style>{standalone_style()}</style>{rest}", text)


_KEY = "nats for a character, a mean over each {} of the text"


def curves_of(losses: Mapping[str, Sequence[float]], parts: int = PARTS) -> tuple[Curve, ...]:
    """Every training as at most `parts` spots. Raises as `loss_picture`."""
    short = [name for name, found in losses.items() if len(found) < 2]
    if not losses or short or len(losses) > len(_DASHES):
        wrong = f"{short[0]!r} has fewer than two steps" if short else f"there are {len(losses)}"
        raise ValueError(f"a chart takes one to {len(_DASHES)} curves, each of two steps or more; {wrong}")
    count = min(parts, *(len(found) for found in losses.values()))
    return tuple(_curve(name, found, count) for name, found in losses.items())


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
    spots = tuple(takewhile(isfinite, means))
    return Curve(name, spots, len(spots) == count)


def _svg(curves: Sequence[Curve]) -> str:
    values = [spot for curve in curves for spot in curve.spots] or [0.0, 1.0]
    low, high = floor(4 * min(values)) / 4, ceil(4 * max(values)) / 4
    high = max(high, low + 0.25)
    right, bottom = WIDTH - _NAMES, _TOP + _HIGH
    count = max(2, *(len(curve.spots) for curve in curves))

    def y(value: float) -> float:
        return _TOP + (high - value) / (high - low) * _HIGH

    def x(part: int) -> float:
        return _LEFT + (part + 1) / count * (right - _LEFT)

    parts = [_ruler(_LEFT, right, y(value), f"{value:g}") for value in _marks(low, high)]
    for quarter in range(1, 5):
        place = _LEFT + quarter / 4 * (right - _LEFT)
        parts.append(f'<line class="ls-tick" x1="{place:.1f}" y1="{bottom}" x2="{place:.1f}" y2="{bottom + 4}"/>')
        parts.append(f'<text class="ls-axis" x="{place:.1f}" y="{bottom + 15}">{25 * quarter} %</text>')
    parts.append(f'<text class="ls-axis" x="{(_LEFT + right) / 2:.1f}" y="{bottom + 29}">text read</text>')
    ends = {i: y(curve.spots[-1]) if curve.spots else float(_TOP) for i, curve in enumerate(curves)}
    levels = _apart(ends, bottom)
    for i, curve in enumerate(curves):
        dash = f' stroke-dasharray="{_DASHES[i]}"' if _DASHES[i] else ""
        path = " ".join(f"{x(part):.1f},{y(spot):.1f}" for part, spot in enumerate(curve.spots))
        end, level = x(len(curve.spots) - 1), levels[i]
        parts.append(
            f'<g><title>{escape(curve.told)}</title><polyline class="ls-loss" points="{path}"{dash}/>'
            f'<polyline class="ls-lead" points="{end + 2:.1f},{ends[i]:.1f} {right + 8},{ends[i]:.1f} '
            f'{right + 16},{level:.1f}"/>'
            f'<polyline class="ls-loss" points="{right + 18},{level:.1f} {right + 44},{level:.1f}"{dash}/>'
            f'<text class="ls-axis ls-left ls-told" x="{right + 50}" y="{level + 3.5:.1f}">'
            f"{escape(curve.told)}</text></g>"
        )
    height = bottom + _AXIS
    return (
        f'<svg class="ls ls-losses" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(loss_words(curves))}">'
        f"{''.join(parts)}</svg>"
    )


def _ruler(left: float, right: float, level: float, label: str) -> str:
    return (
        f'<line class="ls-ruler" x1="{left:.1f}" y1="{level:.1f}" x2="{right:.1f}" y2="{level:.1f}"/>'
        f'<text class="ls-axis ls-right" x="{left - 6:.1f}" y="{level + 3.5:.1f}">{label}</text>'
    )


def _marks(low: float, high: float) -> list[float]:
    """Round values between, three to seven of them."""
    step = next(step for step in (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 1e9) if (high - low) / step <= 6)
    first = ceil(low / step - 1e-9)
    return [round(k * step, 9) for k in range(first, floor(high / step + 1e-9) + 1)]


def _apart(wanted: Mapping[int, float], bottom: float) -> dict[int, float]:
    """Levels for the names: as near to their curves' ends as one line under the other allows."""
    found: dict[int, float] = {}
    floor_ = bottom + _LINE
    for i in sorted(wanted, key=lambda i: -wanted[i]):  # from the bottom up
        found[i] = floor_ = min(wanted[i], floor_ - _LINE)
    return found
