"""The time axis laid out once for every way of drawing it: bars, rows, ticks, and the same in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log10
from typing import Literal

from kit.trace.facts import Trace
from kit.trace.sentences import duration
from kit.trace.timeline import Span, spans
from kit.trace.until import until

Block = Literal["predicted", "measured"]
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


@dataclass(frozen=True, slots=True)
class Bar:
    """A span in its place: which block and rank; `later` ones lie after the position in view and are drawn faint."""

    block: Block
    span: Span
    later: bool = False


@dataclass(frozen=True, slots=True)
class Ticks:
    """A round axis from 0: its end, the step between ticks (both in s), and the unit for labels."""

    end: float
    step: float
    scale: float
    unit: str

    def marks(self) -> list[tuple[float, str]]:
        """(seconds, label) of every tick."""
        count = round(self.end / self.step)
        return [(i * self.step, f"{i * self.step / self.scale:.4g} {self.unit}") for i in range(count + 1)]


@dataclass(frozen=True, slots=True)
class Picture:
    """All that is drawn: predicted bars, measured ones up to the position, then what comes later in the record."""

    bars: tuple[Bar, ...]
    axis: Ticks  # holds the whole record, so it is the same at every position
    blocks: tuple[Block, ...]  # from top to bottom
    world: int

    def words(self) -> str:
        """The picture in words: per rank, how long it computed, communicated and waited."""
        parts = []
        for block in self.blocks:
            own = [bar.span for bar in self.bars if bar.block == block and not bar.later]
            parts.append(f"{block}: " + "; ".join(_rank_words(rank, own) for rank in range(self.world)))
        return ". ".join(parts)


def picture(trace: Trace, position: int | None = None, predicted: Trace | None = None) -> Picture:
    """What a timeline shows at a position; None shows the whole record."""
    whole = spans(trace)
    guessed = spans(predicted) if predicted is not None else ()
    drawn = [Bar("predicted", span) for span in guessed]
    if position is None or not trace.positions or position % len(trace.positions) == len(trace.positions) - 1:
        drawn += [Bar("measured", span) for span in whole]
    else:
        past = spans(until(trace, position))
        reached = _reached(past)
        drawn += [Bar("measured", span) for span in past]
        for span in whole:
            start = max(span.start, reached.get(span.rank, 0.0))
            if span.end > start:
                drawn.append(Bar("measured", replace(span, start=start), later=True))
    axis = ticks(max((span.end for span in (*whole, *guessed)), default=0.0))
    blocks: tuple[Block, ...] = ("predicted", "measured") if predicted is not None else ("measured",)
    return Picture(tuple(visible(drawn, axis.end)), axis, blocks, len(trace.ranks))


def timeline_words(trace: Trace, position: int | None = None, predicted: Trace | None = None) -> str:
    """The timeline in words: per rank, how long it computed, communicated and waited."""
    return picture(trace, position, predicted).words()


def visible(drawn: Sequence[Bar], end: float, columns: int = 700) -> list[Bar]:
    """The bars that show on an axis of `columns` pixels: of those narrower than a pixel one per pixel, lane and kind.

    A record of many thousand operations stays a picture of bounded size; short records are not touched.
    """
    pixel = end / columns
    seen: set[tuple[Block, int, int, str, int]] = set()
    shown = []
    for bar in drawn:
        span = bar.span
        if span.end - span.start < pixel:
            place = (bar.block, span.rank, span.lane, span.kind, int(span.start / pixel))
            if place in seen:
                continue
            seen.add(place)
        shown.append(bar)
    return shown


def ticks(longest: float, most: int = 5) -> Ticks:
    """A round axis from 0 to at least `longest` seconds."""
    longest = longest or 1e-3
    step = round_step(longest, most)
    end = step * max(1, ceil(longest / step - 1e-9))
    scale, unit = next(((s, u) for s, u in _UNITS if end >= s), _UNITS[-1])
    return Ticks(end, step, scale, unit)


def round_step(longest: float, most: int) -> float:
    """1, 2 or 5 times a power of ten, so that at most `most` steps reach `longest` > 0."""
    rough = longest / most
    power = 10.0 ** floor(log10(rough))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))


def tooltip(bar: Bar) -> str:
    """'rank 0 waits: recv from rank 3, line 8, 12 µs'."""
    span = bar.span
    verb = {"compute": "computes", "communicate": "communicates", "wait": "waits", "held": "held"}[span.kind]
    label = "" if span.label in ("compute", "held by you") else f": {span.label}"
    line = f", line {span.place.line}" if span.place else ""
    lasts = ", not over yet" if span.open else f", {duration((span.end - span.start) * 1e9)}"
    return f"rank {span.rank} {verb}{label}{line}{lasts}"


def _rank_words(rank: int, all_spans: Sequence[Span]) -> str:
    own = [span for span in all_spans if span.rank == rank]
    told = []
    for kind, verb in (("compute", "computes"), ("communicate", "communicates"), ("wait", "waited")):
        total = sum(span.end - span.start for span in own if span.kind == kind and not span.open)
        if total:
            told.append(f"{verb} {duration(total * 1e9)}")
    told += ["waits still" for span in own if span.open and span.kind == "wait"][:1]
    told += ["is held" for span in own if span.kind == "held"][:1]
    return f"rank {rank} " + (", ".join(told) if told else "has not begun")


def _reached(past: Sequence[Span]) -> dict[int, float]:
    """How far each rank's clock had come."""
    ends: dict[int, float] = {}
    for span in past:
        if not span.open:
            ends[span.rank] = max(ends.get(span.rank, 0.0), span.end)
    opened = {span.rank: span.end for span in past if span.open}
    return ends | opened
