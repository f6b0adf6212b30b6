"""Every rank's time: what it computed, communicated and waited, predicted above measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, floor, log10
from typing import TYPE_CHECKING

import numpy as np

from kit.plot.figure import Axes, Axis, Boxes, Column, Figure, pixels, values
from kit.plot.messages import messages_height
from kit.trace.text import duration, time_text

if TYPE_CHECKING:
    from kit.trace.timeline import Span
    from kit.trace.trace import Trace

KINDS = ("compute", "communicate", "wait", "held")
_VERBS = {"compute": "computes", "communicate": "communicates", "wait": "waits", "held": "held"}
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_SUBTITLES = {("measured", "step"): "measured, your pauses left out"}
_HEAD, _AXIS, _GAP, _WIDEST = 14, 20, 4, 22  # px: a block's name, the axis, between two blocks, a rank's row at most
DETAIL = 2800  # columns that narrow spans are kept for: four times as fine as a drawing that nobody has zoomed


def timeline_figure(
    trace: Trace, position: int | None = None, predicted: Trace | None = None, height: int | None = None
) -> Figure:
    """Compute, communicate, wait and held per rank; predicted above measured on one axis.

    What the record holds after `position` is faint. The axis covers the whole record, so nothing moves between
    positions; `height` in px follows from the number of ranks unless it is given. None shows the whole record.
    """
    whole = trace.spans()
    guessed = predicted.spans() if predicted is not None else ()
    past, later = _seen(trace, whole, position)
    blocks: list[tuple[str, tuple[Span, ...], tuple[Span, ...]]] = [("measured", past, later)]
    if predicted is not None:
        blocks.insert(0, ("predicted", guessed, ()))
    axis = time_axis(max((span.end for span in (*whole, *guessed)), default=0.0))
    world = len(trace.ranks)
    high = messages_height(world) if height is None else height
    pitch = min(_WIDEST, (high - _AXIS - (_HEAD + _GAP) * len(blocks)) / (world * len(blocks)))
    error = max((rank.clock_error for rank in trace.ranks), default=0)
    off = f", devices' clocks within {time_text(error * 1e-9)}" if error else ""
    rest = high - len(blocks) * (_HEAD + _GAP + pitch * world)
    rows = tuple(
        Axes(
            axis,
            _ranks(world, pitch),
            (_bars(done, to_come, pitch, axis),),
            pitch * world + _GAP,
            head=_HEAD,
            foot=rest if name == "measured" else 0,
            subtitle=_SUBTITLES.get((name, trace.meta.mode), name) + (off if name == "measured" else ""),
            bare=name != "measured",
        )
        for name, done, to_come in blocks
    )
    words = ". ".join(
        f"{name}{off if name == 'measured' else ''}: " + "; ".join(_rank_words(r, done) for r in range(world))
        for name, done, _ in blocks
    )
    key = tuple((kind, kind) for kind in KINDS)
    return Figure("timeline", "Time", (Column(rows, 22, 20),), words, key, width=332)


def time_axis(longest: float, most: int = 5, end: float | None = None, grid: bool = False) -> Axis:
    """A round axis in seconds from 0 to at least `longest`, or to `end`; labels name their unit."""
    longest = longest or 1e-3
    step = round_step(longest, most)
    whole = step * max(1, ceil(longest / step - 1e-9))
    scale, unit = next(((s, u) for s, u in _UNITS if whole >= s), _UNITS[-1])
    end = end or whole
    marks = ((i * step, f"{i * step / scale:.4g} {unit}") for i in range(round(whole / step) + 1))
    return Axis(0.0, end, tuple(mark for mark in marks if mark[0] <= end), grid=grid, zoom=True)


def round_step(longest: float, most: int) -> float:
    """1, 2 or 5 times a power of ten, so that at most `most` steps reach `longest` > 0."""
    rough = longest / most
    power = 10.0 ** floor(log10(rough))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))


def _seen(trace: Trace, whole: tuple[Span, ...], position: int | None) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """The spans up to a position as they were known then, and what comes later in the record."""
    count = len(trace.positions)
    if position is None or not count or position % count == count - 1:
        return whole, ()
    past = trace.until(position).spans()
    reached = _reached(past)
    moved = (replace(span, start=max(span.start, reached.get(span.rank, 0.0))) for span in whole)
    return past, tuple(span for span in moved if span.end > span.start)


def _reached(past: Sequence[Span]) -> dict[int, float]:
    """How far each rank's clock had come."""
    ends: dict[int, float] = {}
    for span in past:
        if not span.open:
            ends[span.rank] = max(ends.get(span.rank, 0.0), span.end)
    opened = {span.rank: span.end for span in past if span.open}
    return ends | opened


def _ranks(world: int, pitch: float) -> Axis:
    """Ranks' numbers, each, every second, fourth ... where rows are thin."""
    every = 1
    while pitch * every < 9:
        every *= 2
    middle = _thick(pitch) / 2
    return pixels(pitch * world + _GAP, tuple((pitch * rank + middle, str(rank)) for rank in range(0, world, every)))


def _thick(pitch: float) -> float:
    return max(1.0, pitch - (3 if pitch > 6 else 1))


def _bars(done: Sequence[Span], later: Sequence[Span], pitch: float, axis: Axis) -> Boxes:
    thick = _thick(pitch)
    flat = max(1.5, thick / 4)  # of what is in flight beneath the rank's own work
    drawn = [*done, *later]
    lane = np.array([min(span.lane, 3) for span in drawn], dtype=float)
    top = pitch * np.array([span.rank for span in drawn], dtype=float) + np.where(
        lane > 0, thick + 1.5 - flat * lane, 0
    )
    boxes = Boxes(
        left=values([span.start for span in drawn]),
        right=values([span.end for span in drawn]),
        top=top,
        bottom=top + np.where(lane > 0, flat, thick),
        kind=np.array([KINDS.index(span.kind) for span in drawn], dtype=np.intp),
        kinds=KINDS,
        told=[""] * len(drawn),
        faint=np.arange(len(drawn)) >= len(done),
    )
    which = boxes.visible(axis, DETAIL)
    return replace(boxes.take(which), told=[_told(drawn[i]) for i in which])


def _told(span: Span) -> str:
    """'rank 0 waits: recv from rank 3, line 8, 12 µs'."""
    label = "" if span.label in ("compute", "held by you") else f": {span.label}"
    line = f", line {span.place.line}" if span.place else ""
    lasts = ", not over yet" if span.open else f", {duration((span.end - span.start) * 1e9)}"
    return f"rank {span.rank} {_VERBS[span.kind]}{label}{line}{lasts}"


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
