"""A pipeline's time: what every rank computes for which micro-batch, and how many activations it holds meanwhile.

A schedule as it would run, and one that has run, are of one type: given several, they stand above each other on one
axis, and where they part can be read off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kit.plot.figure import LETTER, Axes, Axis, Boxes, Column, Figure, Labels, Stack, pixels, values
from kit.plot.timeline import DETAIL, round_step, time_axis
from kit.trace.text import duration

if TYPE_CHECKING:
    from kit.cost.pipeline import Timeline

_KINDS = ("forward", "backward", "weights", "idle")
_KIND = {"F": 0, "B": 1, "I": 1, "W": 2}
_VERBS = {
    "F": "takes micro-batch {} forward",
    "B": "takes micro-batch {} back",
    "I": "passes the gradient of micro-batch {} back",
    "W": "computes the weights' gradients of micro-batch {}",
}
_LEFT, _RIGHT, _HEAD, _FOOT, _LABEL = 48, 62, 20, 22, 14  # px
_ROW, _THIN, _TALL = 22.0, 6.0, 360.0  # px of a rank's row, at least, and of all of them at most
_HELD = 20.0  # px of a rank's activations
_MOST_HELD = 8  # ranks whose activations are drawn; the words have all of them
_MANY = 12  # ranks that are written out in words


def pipeline_figure(runs: Mapping[str, Timeline], unit: str = "s") -> Figure:
    """A block for each run by its name, such as 'ideal' and 'measured', then the activations that each rank holds.

    unit: 's' where the runs' times are seconds, otherwise the word for what they count. Raises ValueError for no run,
    and for runs of different numbers of ranks.
    """
    if not runs:
        raise ValueError("there is nothing to draw: give name -> simulated(schedule)")
    worlds = {run.schedule.ranks for run in runs.values()}
    if len(worlds) > 1:
        raise ValueError(f"runs on {' and '.join(map(str, sorted(worlds)))} ranks do not stand above each other")
    (world,) = worlds
    longest = max(run.seconds for run in runs.values())
    axis = time_axis(longest) if unit == "s" else _counted(longest, unit)
    plots = [_block(name, run, axis, unit) for name, run in runs.items()]
    if world <= _MOST_HELD:
        first = next(iter(runs))
        alike = all(run.schedule.rows == runs[first].schedule.rows for run in runs.values())
        plots += _activations(runs[first], axis, "" if alike else f" in {first}")
    plots[-1] = replace(plots[-1], foot=_FOOT + (_LABEL if axis.label else 0), bare=False)
    said = tuple(line for name, run in runs.items() for line in _words(name, run, unit))
    names = dict.fromkeys(run.schedule.name for run in runs.values())
    parted = any(run.schedule.parted for run in runs.values())
    key = tuple((kind, kind) for kind in _KINDS if parted or kind != "weights")
    column = Column(tuple(plots), _LEFT, _RIGHT)
    return Figure("pipeline", " and ".join(names), (column,), "\n".join(said), key, said=said)


def _counted(longest: float, unit: str) -> Axis:
    step = round_step(longest or 1.0, 8)
    marks = tuple((i * step, f"{i * step:g}") for i in range(int(longest / step) + 1))
    return Axis(0.0, longest or 1.0, marks, label=unit, zoom=True)


def _block(name: str, run: Timeline, axis: Axis, unit: str) -> Axes:
    world = run.schedule.ranks
    pitch = max(_THIN, min(_ROW, _TALL / world))
    thick = pitch - (2 if pitch > 2 * _THIN else 1)
    every = next(2**k for k in range(10) if pitch * 2**k >= 10)
    ranks = pixels(pitch * world, tuple((pitch * r + thick / 2, f"rank {r}") for r in range(0, world, every)))
    boxes = _boxes(run, pitch, thick, unit)
    return Axes(
        axis,
        ranks,
        (_idle(run, pitch, thick), boxes.take(boxes.visible(axis, DETAIL)), *_numbers(run, boxes, axis)),
        pitch * world,
        head=_HEAD,
        foot=4,
        subtitle=f"{name}: idle {run.idle_share:.1%} of the time",
        bare=True,
    )


def _idle(run: Timeline, pitch: float, thick: float) -> Boxes:
    """A grey row for each rank, from begin to end: what nothing covers is idle."""
    tops = pitch * np.arange(run.schedule.ranks, dtype=float)
    told = [f"rank {rank} is idle for {_share(run.idle(rank), run.seconds)}" for rank in range(len(tops))]
    zero = np.zeros(len(tops))
    kind = np.full(len(tops), _KINDS.index("idle"), dtype=np.intp)
    return Boxes(zero, zero + run.seconds, tops, tops + thick, kind, _KINDS, told)


def _boxes(run: Timeline, pitch: float, thick: float, unit: str) -> Boxes:
    rows = [(rank, action) for rank, row in enumerate(run.schedule.rows) for action in row]
    began, ended = (values([moment for row in all_rows for moment in row]) for all_rows in (run.began, run.ended))
    half = {
        (rank, position + side): side
        for rank, position in run.schedule.together
        for side in (0, 1)
        if run.began[rank][position] == run.began[rank][position + 1]
    }
    positions = [(rank, position) for rank, row in enumerate(run.schedule.rows) for position in range(len(row))]
    upper = np.array([half.get(place, 0) for place in positions]) * thick / 2
    lower = np.array([thick / 2 if half.get(place) == 0 else thick for place in positions])
    top = pitch * np.array([rank for rank, _ in rows], dtype=float)
    told = [
        f"rank {rank} {_VERBS[kind].format(micro_batch)} at stage {stage}, {_length(end - begin, unit)}"
        for (rank, (stage, kind, micro_batch)), begin, end in zip(rows, began, ended, strict=True)
    ]
    kinds = np.array([_KIND[action.kind] for _, action in rows], dtype=np.intp)
    return Boxes(began, ended, top + upper, top + lower, kinds, _KINDS, told)


def _numbers(run: Timeline, boxes: Boxes, axis: Axis) -> list[Labels]:
    """Micro-batches, in the boxes that have room for their numbers."""
    text = [str(action.micro_batch) for row in run.schedule.rows for action in row]
    width = (axis.share(boxes.right) - axis.share(boxes.left)) * (816 - _LEFT - _RIGHT)
    fits = (width >= LETTER * np.array([len(one) for one in text]) + 3) & (boxes.bottom - boxes.top >= 9)
    labels = []
    for number, kind in enumerate(_KINDS[:3]):
        which = np.flatnonzero(fits & (boxes.kind == number))
        if len(which):
            middle = (boxes.left[which] + boxes.right[which]) / 2
            height = (boxes.top[which] + boxes.bottom[which]) / 2
            labels.append(Labels(middle, height, [text[i] for i in which], role=f"on {kind}"))
    return labels


def _activations(run: Timeline, axis: Axis, where: str) -> list[Axes]:
    """How many each rank holds: a plot a rank, all of one scale."""
    ranks = range(run.schedule.ranks)
    most = max(map(run.most_held, ranks), default=0) or 1
    plots = []
    for rank in ranks:
        held = run.held(rank)
        edges = values([*(when for when, _ in held), run.seconds])
        counts = values([count for _, count in held])
        told = [f"rank {rank} holds {count:.0f} activations" for count in counts]
        plots.append(
            Axes(
                axis,
                Axis(0.0, most * 1.15, ((most / 2, f"rank {rank}"),)),
                (Stack(edges, counts[None, :], ("activations",), told),),
                _HELD,
                head=2 if rank else _HEAD,
                subtitle="" if rank else f"activations held{where}, each of one micro-batch at one stage",
                right=((most / 2, f"at most {run.most_held(rank)}"),),
                bare=True,
            )
        )
    return plots


def _words(name: str, run: Timeline, unit: str) -> list[str]:
    made, ranks = run.schedule, range(run.schedule.ranks)
    held = [run.most_held(rank) for rank in ranks]
    most = f"{max(held)} on the rank that holds most" if len(held) > _MANY else f"{', '.join(map(str, held))} by rank"
    batches = f"{made.micro_batches} micro-batch{'es' * (made.micro_batches > 1)}"
    return [
        f"{name}: {made.name} on {made.ranks} ranks, {batches}, {_length(run.seconds, unit)}; "
        f"idle {run.idle_share:.1%} of the time, an overhead of {run.overhead:.1%} over an ideal pipeline; "
        f"activations held at most: {most}"
    ]


def _length(seconds: float, unit: str) -> str:
    if unit != "s":
        return f"{seconds:.4g} {unit}"
    return f"{seconds * 1e3:.0f} ms" if 0.01 <= seconds < 10 else duration(seconds * 1e9)


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%} of the time" if whole else "none of the time"
