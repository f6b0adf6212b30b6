"""The stages of ZeRO side by side: what a rank held and sent in a step of each, beside the formulas, and in words.

Laid out once here; `kit.views.stages_svg` draws it. The step is the last one of a run: from its forward pass to the end
of the run, which the optimizer's step is expected to be. 'At rest' is the moment when its backward pass has ended: no
layer is whole then and no bucket full, so that is where formulas of model states can be held against what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kit.cost.memory import FP32, MIXED, Precision, model_state
from kit.cost.training import elements_sent
from kit.trace.facts import Holding, Pass, Trace
from kit.trace.holdings import KINDS, MODEL, Holdings, total
from kit.trace.sentences import canonical
from kit.trace.steps import steps
from kit.trace.traffic import algorithmic_bytes
from kit.views.holdings import bytes_text

PRECISIONS = {"fp32": FP32, "mixed": MIXED}
OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather")  # of which a step of any stage is made


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
        raise ValueError("there is no stage to show: give stage -> what kit.memory(function, ...) returns")
    if precision not in PRECISIONS:
        raise ValueError(f"precision is 'fp32' or 'mixed', not {precision!r}")
    accounts = {number: step_of(trace) for number, trace in sorted(runs.items())}
    return accounts, {
        number: _stage(number, runs[number], held, parameters, PRECISIONS[precision])
        for number, held in accounts.items()
    }


def step_of(trace: Trace) -> Holdings:
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
    held = ", ".join(f"{kind} {bytes_text(size)}" for kind, size in zip(MODEL, one.state, strict=True))
    rest = sum(one.state)
    more = ", ".join(f"{kind} {bytes_text(size)}" for kind, size in one.beside if size > 0)
    less = "".join(f"; of {kind} {bytes_text(-size)} are still to come" for kind, size in one.beside if size < 0)
    sent = ", ".join(
        f"{name.replace('_', '-')} {bytes_text(size)}" for name, size in zip(OPERATIONS, one.sent, strict=True) if size
    )
    rounds = 3 if one.number == 3 else 2
    return (
        f"At rest a rank holds {bytes_text(rest)} ({held}); {one.formula} = {bytes_text(one.due)}"
        f" ({rest / one.due:.2f} x that was measured).",
        f"At the fullest moment {bytes_text(one.peak)}: on top come {more}{less}." if more else "Nothing comes on top.",
        f"It sends {bytes_text(sum(one.sent))} ({sent}); {rounds}P(n-1)/n elements are {bytes_text(one.toll)}."
        if ranks > 1
        else "One rank has nobody to send to.",
    )


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


def _at_rest(held: Holdings, rank: int) -> Holding:
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
