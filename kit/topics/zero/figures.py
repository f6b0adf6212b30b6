"""The stages of ZeRO side by side: what a rank held and sent in a step of each, beside the formulas, and in words.

The step is the last one of a run: from its forward pass to the end of the run, which the optimizer's step is expected
to be. 'At rest' is the moment when its backward pass has ended: no layer is whole then and no bucket full, so that is
where formulas of model states can be held against what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kit.cost.training import elements_sent
from kit.plot.figure import DASHED, Axes, Axis, Boxes, Column, Figure, Labels, Line, Mark, pixels, values
from kit.plot.memory import memory_columns, memory_key
from kit.topics.zero.cost import FP32, MIXED, Precision, model_state
from kit.trace.facts import MemorySample, Pass
from kit.trace.memory import KINDS, MODEL, Holdings, total
from kit.trace.text import canonical, size_text
from kit.trace.timeline import steps
from kit.trace.trace import Trace
from kit.trace.traffic import algorithmic_bytes

PRECISIONS = {"fp32": FP32, "mixed": MIXED}
OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather")  # of which a step of any stage is made
_SHORT = ("AR", "RS", "AG")
_LEFT, _RIGHT, _HEAD = 508, 276, 20  # px: areas and bars in the widest figure, the title of bars
_BAR, _NAME, _TOP = 0.58, 16, 18  # of a bar's place; px of the name below it, of the size above it
_LINES = 4  # of words that there is room for


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage's step, on the rank that has most of each. Bytes; what a formula says is `due` and `toll`."""

    number: int
    state: tuple[int, ...]  # of the kinds in `MODEL`, at rest
    due: int
    formula: str  # '4P + 12P/n'
    peak: int  # all kinds, at the fullest moment
    beside: tuple[tuple[str, int], ...]  # (kind, bytes) of what makes `peak` of `state`; negative: still to come
    sent: tuple[float, ...]  # by `OPERATIONS`
    toll: float


def stages(
    runs: Mapping[int, Trace], parameters: int, precision: str = "fp32"
) -> tuple[dict[int, Holdings], dict[int, Stage]]:
    """Each stage's step as accounts by rank, and in figures. ValueError for runs without accounts or backward."""
    if not runs:
        raise ValueError("there is no stage to show: give stage -> what kit.options(memory=True).record(fn) returns")
    if precision not in PRECISIONS:
        raise ValueError(f"precision is 'fp32' or 'mixed', not {precision!r}")
    accounts = {number: last_step(trace) for number, trace in sorted(runs.items())}
    return accounts, {
        number: _stage(number, runs[number], held, parameters, PRECISIONS[precision])
        for number, held in accounts.items()
    }


def last_step(trace: Trace) -> Holdings:
    """What ranks held in the last step of a run, the optimizer's step included whoever took it."""
    whole = trace.holdings()
    ranks, passes = [], []
    for rank, own in enumerate(whole.ranks):
        start, over = _begins(whole.passes[rank], rank), own[-1].label == "ends"
        mine = [held for held in (own[:-1] if over else own) if held.time >= start]
        seen = [one for one in whole.passes[rank] if one.start >= start]
        if mine and all(one.name != "step" for one in seen):
            seen.append(Pass("step", max(one.end for one in seen), mine[-1].time))
        before = [replace(held, time=start) for held in own if held.time < start][-1:]
        ranks.append((*before, *mine))
        passes.append(tuple(seen))
    return Holdings(tuple(ranks), tuple(passes), whole.method)


def formula_of(stage: int, precision: Precision = FP32) -> str:
    """'4P + 12P/n' for stage 2 in fp32: bytes of model states."""
    parts = (precision.weight, precision.gradient, precision.optimizer)
    whole, shared = sum(parts[: 3 - stage]), sum(parts[3 - stage :])
    return " + ".join([f"{whole}P"] * bool(whole) + [f"{shared}P/n"] * bool(shared))


def stage_words(one: Stage, ranks: int) -> tuple[str, ...]:
    """What the picture says of one stage: what lies still, what comes on top, what is sent."""
    held = ", ".join(f"{kind} {size_text(size)}" for kind, size in zip(MODEL, one.state, strict=True))
    rest = sum(one.state)
    more = ", ".join(f"{kind} {size_text(size)}" for kind, size in one.beside if size > 0)
    less = "".join(f"; of {kind} {size_text(-size)} are still to come" for kind, size in one.beside if size < 0)
    sent = ", ".join(
        f"{name.replace('_', '-')} {size_text(size)}" for name, size in zip(OPERATIONS, one.sent, strict=True) if size
    )
    rounds = 3 if one.number == 3 else 2
    return (
        f"At rest a rank holds {size_text(rest)} ({held}); {one.formula} = {size_text(one.due)}"
        f" ({rest / one.due:.2f} x that was measured).",
        f"At the fullest moment {size_text(one.peak)}: on top come {more}{less}." if more else "Nothing comes on top.",
        f"It sends {size_text(sum(one.sent))} ({sent}); {rounds}P(n-1)/n elements are {size_text(one.toll)}."
        if ranks > 1
        else "One rank has nobody to send to.",
    )


def stage_figures(
    runs: Mapping[int, Trace], parameters: int, precision: str = "fp32"
) -> tuple[dict[int, Figure], dict[int, Stage]]:
    """For each stage areas by rank, beside bars of what a rank holds at rest and sends in all stages; and the figures.

    All are to one scale and of one size; dashed lines are what formulas say. runs: stage (0 to 3) -> a run whose
    memory was accounted for, and which ends with a training step. Raises as `stages`.
    """
    accounts, found = stages(runs, parameters, precision)
    named = {f"stage {number}": held for number, held in accounts.items()}
    formulas = {f"stage {number}": ((one.formula, float(one.due)),) for number, one in found.items()}
    ranks = max(len(held.ranks) for held in accounts.values())
    key = tuple((role, word) for role, word in memory_key(named) if role != "other")
    drawn = {}
    for chosen, one in found.items():
        (areas,) = memory_columns(named, formulas, only=f"stage {chosen}")
        high = areas.height / 2 - _HEAD
        rest = {s.number: (tuple(map(float, s.state)), float(s.due)) for s in found.values()}
        sent = {s.number: (s.sent, s.toll) for s in found.values()}
        bars = (
            _bars(rest, chosen, tuple(MODEL), high, "Held at rest", "dashed: formula"),
            _bars(sent, chosen, OPERATIONS, high, "Sent in the step", "AR = RS + AG", _SHORT),
        )
        said = stage_words(one, ranks)
        columns = replace(areas, share=_LEFT - areas.left - areas.right), Column(bars, 24, 0, share=_RIGHT)
        title, words = "Memory over one step", "\n".join(said)
        drawn[chosen] = Figure("stages", title, columns, words, key, said=said, room=_LINES)
    return drawn, found


def _bars(
    found: Mapping[int, tuple[Sequence[float], float]],
    chosen: int,
    kinds: tuple[str, ...],
    height: float,
    title: str,
    subtitle: str,
    names: Sequence[str] = (),
) -> Axes:
    """A stack for each stage, the chosen one strong; its formula as a dashed line across it."""
    bottom = height - _NAME
    scale = (bottom - _TOP) / (max(max(sum(parts), due) for parts, due in found.values()) or 1.0)
    middles = {stage: place + 0.5 for place, stage in enumerate(found)}
    boxes: list[tuple[float, float, float]] = []  # (middle, top, bottom) of the parts
    kind_of, faint, told, inner = [], [], [], []
    for stage, (parts, due) in found.items():
        ends = bottom - scale * np.cumsum([0.0, *parts])
        for kind, size in enumerate(parts):
            place = middles[stage], float(ends[kind + 1]), float(ends[kind])
            if size:
                boxes.append(place)
                kind_of.append(kind)
                faint.append(stage != chosen)
                told.append(_told(stage, parts, due, f"{kinds[kind].replace('_', '-')} {size_text(size)}"))
            if names and scale * size > 12:
                inner.append((place[0], (place[1] + place[2]) / 2, names[kind]))
    middle, tops, bottoms = values(boxes).reshape(-1, 3).T
    stacks = Boxes(
        left=middle - _BAR / 2,
        right=middle + _BAR / 2,
        top=tops,
        bottom=bottoms,
        kind=np.array(kind_of, dtype=np.intp),
        kinds=kinds,
        told=told,
        faint=np.array(faint, dtype=bool),
        ghost=0.55,  # words stay clear
    )
    marks: list[Mark] = [stacks]
    for stage, (_, due) in found.items():
        across, level = (
            values([middles[stage] - _BAR / 2 - 0.08, middles[stage] + _BAR / 2 + 0.08]),
            bottom - scale * due,
        )
        marks.append(Line(across, values([level, level]), "ink", f"by formula {size_text(due)}", DASHED))
    places, strong = values(list(middles.values())), [stage == chosen for stage in found]
    above = values([bottom - scale * sum(parts) - 8 for parts, _ in found.values()])
    sizes = [size_text(sum(parts)) for parts, _ in found.values()]
    marks += [
        Labels(places, above, sizes, strong=strong),
        Labels(places, np.full(len(places), height - 6.0), [f"stage {stage}" for stage in found], strong=strong),
    ]
    if inner:
        x, y, text = zip(*inner, strict=True)
        marks.append(Labels(values(x), values(y), list(text), role="ink", halo=True))
    return Axes(Axis(0.0, len(found)), pixels(height), tuple(marks), height, head=_HEAD, title=title, subtitle=subtitle)


def _told(stage: int, parts: Sequence[float], due: float, part: str) -> str:
    return f"stage {stage}: {size_text(sum(parts))}, by formula {size_text(due)}; of it {part}"


def _stage(number: int, trace: Trace, held: Holdings, parameters: int, precision: Precision) -> Stage:
    ranks = range(len(held.ranks))
    at_rest = {rank: _at_rest(held, rank) for rank in ranks}
    fullest = {rank: held.peak(rank) for rank in ranks}
    most = max(ranks, key=lambda rank: (total(at_rest[rank], MODEL), -rank))
    top = max(ranks, key=lambda rank: (fullest[rank].nbytes, -rank))
    parts = dict(fullest[top].parts)
    more = {kind: parts.get(kind, 0) - getattr(at_rest[top], KINDS[kind]) * (kind in MODEL) for kind in KINDS}
    by_rank = {rank: _sent(trace, rank, held.passes[rank][0].start) for rank in ranks}
    n = len(held.ranks)
    return Stage(
        number=number,
        state=tuple(getattr(at_rest[most], KINDS[kind]) for kind in MODEL),
        due=model_state(parameters, ranks=n, stage=number, precision=precision).total,
        formula=formula_of(number, precision),
        peak=fullest[top].nbytes,
        beside=tuple((kind, size) for kind, size in more.items() if size),
        sent=max(by_rank.values(), key=sum),
        toll=elements_sent(parameters=parameters, ranks=n, stage=number) * precision.weight,
    )


def _begins(passes: tuple[Pass, ...], rank: int) -> int:
    found = steps(passes)
    if not found:
        raise ValueError(
            f"rank {rank} took no training step in this run: a module is called, and its loss goes backward"
        )
    return found[-1][0]


def _at_rest(held: Holdings, rank: int) -> MemorySample:
    """When the backward pass has ended."""
    backward = [one for one in held.passes[rank] if one.name == "backward"]
    if not backward:
        raise ValueError(f"rank {rank} had no backward pass in its last step: there is no gradient to speak of")
    return max((one for one in held.of(rank) if one.time <= backward[-1].end), key=lambda one: one.time)


def _sent(trace: Trace, rank: int, start: int) -> tuple[float, ...]:
    sums = dict.fromkeys(OPERATIONS, 0.0)
    for op in trace.ranks[rank].operations:
        name = next((known for known in OPERATIONS if canonical(op.name).startswith(known)), None)
        if op.issued >= start and name is not None:
            sums[name] += algorithmic_bytes(op)[0]
    return tuple(sums.values())
