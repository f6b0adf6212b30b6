"""What lab 06a has to say: the usual mistakes with rows of actions and with messages between stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kit.cost.pipeline import simulated
from kit.grade.traffic import sends
from kit.grade.values import is_tensor, on_each_result, same
from kit.grade.words import counted, line
from kit.plan.families import schedule
from kit.plan.flaws import flaws, most_held
from kit.plan.schedule import BACKWARD, FORWARD, Schedule
from kit.topics.pipeline.cases import FLOAT, WIDTH
from kit.topics.pipeline.rows import from_rows

if TYPE_CHECKING:
    import torch

    from kit.grade.exercise import Run

# -------------------------------------------------------------------------------------------------------- rows


def written(run: Run) -> Schedule:
    """What the ranks' rows make together. ValueError for rows that are none."""
    return from_rows([after[-1].get("row") for after in run.after], micro_batches=run.case.size)


def micro_batches(m: int) -> str:
    return "1 micro-batch" if m == 1 else f"{m} micro-batches"


def no_rows(run: Run) -> str | None:
    """A rule: the function did not return a list of actions."""
    try:
        written(run)
    except ValueError as error:
        return str(error)
    return None


def cannot_run(run: Run) -> str | None:
    """A rule: what the validator says of the rows; it is said before anything runs."""
    found = flaws(written(run))
    if not found:
        return None
    where = f"rank {found[0].rank}: " if found[0].rank is not None else ""
    return f"with {micro_batches(run.case.size)} these rows cannot run. {where}{found[0].sentence}"


def all_forward_first(run: Run) -> str | None:
    """A rule: no rank goes back before it has gone forward with all."""
    for rank, row in enumerate(written(run).rows):
        kinds = [action.kind for action in row]
        if FORWARD in kinds[kinds.index(BACKWARD) :]:
            early, last = row[kinds.index(BACKWARD)], max(i for i, kind in enumerate(kinds) if kind == FORWARD)
            return (
                f"rank {rank} goes back with micro-batch {early.micro_batch} before it has gone forward with"
                f" micro-batch {row[last].micro_batch}: here all go forward before the first comes back"
            )
    return None


def holds_too_much(run: Run) -> str | None:
    """A rule: no rank holds more activations than 1F1B does."""
    plan, p, m = written(run), run.case.world, run.case.size
    for rank in range(p):
        held, enough = most_held(plan, rank), min(m, p - rank)
        if held > enough:
            return (
                f"with {micro_batches(m)} rank {rank} holds {counted(held, 'activation')} at"
                f" once where {enough} {'is' if enough == 1 else 'are'} enough: it goes p - 1 - r = {p - 1 - rank}"
                " forwards ahead, then one forward and one backward by turns"
            )
    return None


def too_slow(run: Run) -> str | None:
    """A rule: together the rows take as long as 1F1B, counted in units of F, where a backward pass takes two."""
    plan, p, m = written(run), run.case.world, run.case.size
    took, enough = simulated(plan).seconds, simulated(schedule("1F1B", p, m)).seconds
    if took <= enough:
        return None
    few = next((rank for rank in range(p) if most_held(plan, rank) < min(m, p - rank)), None)
    back = [[action.micro_batch for action in row if action.kind == BACKWARD] for row in plan.rows]
    newest = next((rank for rank, order in enumerate(back) if order != sorted(order)), None)
    if newest is not None:
        why = f"rank {newest} takes newer micro-batches back before older ones, and the oldest has its gradient first"
    elif few is not None:
        why = f"rank {few} goes back too early and then waits: it goes p - 1 - r = {p - 1 - few} forwards ahead first"
    else:
        why = "some rank waits where it could go forward"
    return f"this takes {took:g} units where {enough:g} are enough: {why}"


# ---------------------------------------------------------------------------------------------- a step by hand


def no_gradient(run: Run, expected: Sequence[Any]) -> str | None:
    """A stage went forward and never came back, or its gradient was thrown away."""
    empty = [rank for rank, got in enumerate(run.results) if got is None]
    if not empty:
        return None
    if run.after[empty[0]][-1].get("forward", 0) == 0:
        return f"rank {empty[0]} never computed its stage: each micro-batch goes through all of them"
    return (
        f"the stage on rank {empty[0]} has no gradient: y.backward(dy) puts it there, on the last rank that of the"
        " loss, and it has to stay"
    )


def not_the_mean(run: Run, expected: Sequence[Any]) -> str | None:
    """m times the right gradient."""
    m = run.case.size
    pairs = list(zip(run.results, expected, strict=True))
    if m > 1 and all(is_tensor(got) and same(got, right * m) for got, right in pairs):
        return (
            f"every gradient is {m} times the right one: the mean of {m} losses is asked for, so each loss counts 1/m"
        )
    if m > 1 and all(is_tensor(got) and same(got, right / m) for got, right in pairs):
        return f"every gradient is 1/{m} of the right one: the loss was divided by m twice"
    p = run.case.world
    if p > 1 and all(is_tensor(got) and same(got, right * m / p) for got, right in pairs):
        return (
            f"every gradient is {m}/{p} of the right one: it was divided by the number of ranks, not of micro-batches"
        )
    return None


@on_each_result
def of_one_micro_batch(run: Run, rank: int, got: Any, right: Any) -> str | None:
    """The gradient of one micro-batch alone."""
    m = run.case.size
    if m < 2:
        return None
    parts = _paired(run, rank, list(range(m)))
    for j in range(m):
        for factor in (1.0, float(m)):
            if is_tensor(got) and same(got, parts[j] * factor):
                which = "last" if j == m - 1 else "first" if j == 0 else f"{j}th"
                return (
                    f"rank {rank} has the gradient of the {which} micro-batch alone: those of all {m} add up in the"
                    " stage's parameters"
                )
    return None


@on_each_result
def of_another_micro_batch(run: Run, rank: int, got: Any, right: Any) -> str | None:
    """Gradients that came back met the activations of other micro-batches."""
    m = run.case.size
    if m < 2 or rank == run.case.world - 1 or not is_tensor(got):
        return None
    orders = {
        "the other way round": list(reversed(range(m))),
        "always those of the last": [m - 1] * m,
        "always those of the first": [0] * m,
    }
    for how, order in orders.items():
        if same(got, sum(_paired(run, rank, order), right * 0)):
            return (
                f"on rank {rank} gradients met the activations of other micro-batches, {how}: what comes back first"
                " belongs to what the next rank sent back first"
            )
    return None


def _paired(run: Run, rank: int, order: list[int]) -> list[torch.Tensor]:
    """For each micro-batch j the gradient of a rank's stage, if what comes back for j meets the activations of
    order[j]; with 1/m.
    """
    import torch
    from torch import nn

    from kit.topics.pipeline.drives import batch, stage

    p, m = run.case.world, run.case.size
    whole = [stage(number, WIDTH, (0.0, 0.0, 0.0)) for number in range(p)]
    inputs, targets = batch(m, WIDTH)
    arrived, given = [], []  # at this stage by micro-batch, and what comes back to it
    for x, target in zip(inputs, targets, strict=True):
        for number in range(rank):
            x = whole[number](x)
        x = x.detach()
        arrived.append(x)
        y = whole[rank](x).detach().requires_grad_()
        z = y
        for number in range(rank + 1, p):
            z = whole[number](z)
        (nn.functional.mse_loss(z, target) / m).backward()
        assert y.grad is not None, "the loss depends on it"
        given.append(y.grad)
    found = []
    for j in range(m):
        own = stage(rank, WIDTH, (0.0, 0.0, 0.0))
        own(arrived[order[j]]).backward(given[j])
        found.append(torch.cat([one.grad.flatten() for one in own.parameters() if one.grad is not None]))
    return found


def too_many_messages(run: Run) -> str | None:
    """A rule: one message for each micro-batch and direction between neighbours, (B, C) each."""
    from kit.topics.pipeline.drives import BATCH

    p, m = run.case.world, run.case.size
    for part in run.trace.ranks:
        sent = sends(part)
        enough = m * ((part.rank < p - 1) + (part.rank > 0))
        large = next((one for one in sent if one.payload > BATCH * WIDTH * FLOAT), None)
        if large is not None:
            return (
                f"rank {part.rank} sent {large.payload} bytes at once, from {line(large, run)}: a message is what one"
                f" micro-batch needs, {BATCH * WIDTH * FLOAT} bytes"
            )
        if len(sent) > enough:
            return (
                f"rank {part.rank} sent {counted(len(sent), 'message')} where {enough} are enough, from"
                f" {line(sent[-1], run)}: an activation on and a gradient back for each of {m} micro-batches"
            )
    return None


# ------------------------------------------------------------------------------------------- layers cut into stages


def no_cut(run: Run) -> str | None:
    """A rule: not a number of layers for each stage, or not all layers once."""
    layers, p = run.case.facts["layers"], run.case.world
    for rank, cut in enumerate(_cuts(run)):
        if not isinstance(cut, list) or len(cut) != p:
            return f"rank {rank} returned {cut} where a list of {p} numbers is asked for, the layers of each stage"
        if sum(cut) == sum(layers) != len(layers):
            return f"{cut} adds up to the {sum(layers)} ms of all layers: return how many layers a stage has, not ms"
        if min(cut) < 1:
            return f"{cut} for layers of {layers} ms: stage {cut.index(min(cut))} has no layer, its rank nothing to do"
        if sum(cut) != len(layers):
            return f"{cut} for layers of {layers} ms: {sum(cut)} layers have a stage, and there are {len(layers)}"
    return None


def slow_stage(run: Run) -> str | None:
    """A rule: the slowest stage takes no longer than it must."""
    layers, p = run.case.facts["layers"], run.case.world
    least = shortest(layers, p)
    for cut in _cuts(run):
        took = _milliseconds(layers, cut)
        if max(took) > least:
            why = "a pipeline goes at the pace of its slowest stage"
            if max(cut) - min(cut) <= 1:
                why = "equally many layers do not take equally long"
            elif took.index(max(took)) == p - 1:
                why = "what the stages before leave over falls to the last one"
            return f"{cut} for layers of {layers} ms: stage {took.index(max(took))} takes {max(took)} ms where" + (
                f" {least} are enough: {why}"
            )
    return None


def shortest(layers: Sequence[int], p: int) -> int:
    """What the slowest of p stages takes at least, a layer or more in each: by trying all places of the last cut."""
    count = len(layers)
    least = [sum(layers[:end]) for end in range(count + 1)]  # of the first layers, in so many stages as yet
    for stages in range(2, p + 1):
        least = [
            min((max(least[at], sum(layers[at:end])) for at in range(stages - 1, end)), default=sum(layers))
            for end in range(count + 1)
        ]
    return least[count]


def _cuts(run: Run) -> list[Any]:
    return [after[-1].get("cut") for after in run.after]


def _milliseconds(layers: Sequence[int], cut: Sequence[int]) -> list[int]:
    ends = [sum(cut[: stage + 1]) for stage in range(len(cut))]
    return [sum(layers[end - own : end]) for own, end in zip(cut, ends, strict=True)]


# --------------------------------------------------------------------------------------------------- tied weights


def not_added(run: Run, expected: Sequence[Any]) -> str | None:
    """One end, or both, have something else than the sum."""
    ends = (0, run.case.world - 1)
    own = [run.case.arguments[rank][0] for rank in ends]
    got = [run.results[rank] for rank in ends]
    if all(same(one, mine) for one, mine in zip(got, own, strict=True)):
        return "both ends kept their own gradient: the copies of the matrix would drift apart; both step with the sum"
    if all(same(one, other) for one, other in zip(got, reversed(own), strict=True)):
        return "both ends have the gradient of the other: add what came to your own"
    if all(same(one, expected[0] / 2) for one in got):
        return "both ends have half of the sum: it is one matrix that is used twice, so its gradients add up"
    right = [same(one, expected[0]) for one in got]
    if right.count(True) == 1:
        wrong = ends[right.index(False)]
        return f"rank {wrong} has not the sum: without it its copy of the matrix takes another step than the other's"
    return None


def ends_alone(run: Run) -> str | None:
    """A rule: one message each way, between the two ends."""
    ends = (0, run.case.world - 1)
    for part in run.trace.ranks:
        if part.rank not in ends and part.operations:
            first = part.operations[0]
            return (
                f"rank {part.rank} took part in {first.name}, from {line(first, run)}: only the first rank and the last"
                " hold the matrix, the others can go on"
            )
        if len(sends(part)) > 1:
            where = line(sends(part)[-1], run)
            return f"rank {part.rank} sent {len(sends(part))} messages where one is enough, from {where}"
    return None
