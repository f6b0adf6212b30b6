"""What lab 06b has to say: the usual mistakes with a backward pass in two parts, and with a norm over all stages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kit.cost.pipeline import simulated
from kit.grade.traffic import on_each_rank, sends
from kit.grade.values import is_tensor, on_each_result, same
from kit.grade.words import counted, line
from kit.plan.families import schedule
from kit.plan.flaws import most_held
from kit.plan.schedule import FORWARD, INPUT, PASSES_BACK, WEIGHT, Schedule
from kit.topics.pipeline.cases_b import early_steps, final_steps, limit_of, squares, stepped
from kit.topics.pipeline.diagnoses import micro_batches, written

if TYPE_CHECKING:
    import torch

    from kit.grade.exercise import Run
    from kit.trace.facts import RankTrace

# ------------------------------------------------------------------------------------ a backward pass in two parts


def no_parts(run: Run) -> str | None:
    """A rule: not three functions, or one of them does not return what it is asked for."""
    for rank, seen in enumerate(_seen(run)):
        if seen.get("parts", "three functions") != "three functions":
            return (
                f"rank {rank}: parted_stage returned {seen['parts']} where three functions are asked for, in this"
                " order: forward, input_gradient, weight_gradient"
            )
        if "nothing" in seen:
            kind, j = seen["nothing"][0], seen["nothing"][1:]
            told = {
                "F": f"forward({j}, ...) returned nothing where y (B, D) is asked for",
                "I": f"input_gradient({j}, ...) returned nothing where dx (B, C) is asked for",
                "W": f"weight.grad is None after weight_gradient({j}): add to what is there",
            }
            return f"rank {rank}: {told[kind]}"
    return None


def weight_in_input(run: Run) -> str | None:
    """A rule: the gradient of the weights does not change during I."""
    for rank, seen in enumerate(_seen(run)):
        if "early" in seen:
            both = " and again in W" if "idle" not in seen else ""
            return (
                f"rank {rank}: I of micro-batch {seen['early']} has changed weight.grad{both}: I is what the stage"
                " before waits for, dx alone; the gradient of the weights comes in W, once"
            )
    return None


def weight_never(run: Run, expected: Sequence[Any]) -> str | None:
    """A W that adds nothing."""
    for rank, seen in enumerate(_seen(run)):
        if "idle" in seen:
            return (
                f"rank {rank}: W of micro-batch {seen['idle']} has left weight.grad as it was: the gradient of the"
                " weights is lost"
            )
    return None


@on_each_result
def not_by_autograd(run: Run, rank: int, got: Any, right: Any) -> str | None:
    """y, dx or what W adds is wrong, in the order in which they are computed."""
    if not is_tensor(got) or got.shape != right.shape:
        return None
    ys, dxs, dws = _taken(run, rank)
    ends = [sum(one.numel() for one in part) for part in (ys, [*ys, *dxs])]
    if not same(got[: ends[0]], right[: ends[0]]):
        return f"rank {rank}: forward is wrong: y = tanh(x A^T), `torch.tanh(x @ weight.T)`"
    if not same(got[: ends[1]], right[: ends[1]]):
        return _of_the_input(run, rank, got[ends[0] : ends[1]])
    return _of_the_weights(run, rank, got[ends[1] :].view_as(dws[0]))


def _of_the_input(run: Run, rank: int, found: torch.Tensor) -> str:
    import torch

    weight, xs, dys = _drawn(run, rank)
    ys, _, _ = _taken(run, rank)
    if same(found, torch.cat([(dy @ weight).flatten() for dy in dys])):
        return f"rank {rank}: dx is that of a stage without tanh: I begins with dz = dy (1 - y^2)"
    newest = [min(j + 1, len(xs) - 1) for j in range(len(xs))]
    late = [(dy * (1 - ys[newest[j]] ** 2)) @ weight for j, dy in enumerate(dys)]
    if same(found, torch.cat([one.flatten() for one in late])):
        return (
            f"rank {rank}: I took the activations of the micro-batch that went forward last: others have gone forward"
            " since its own, so keep them by the number j"
        )
    return f"rank {rank}: dx is wrong: dz = dy (1 - y^2), then dx = dz A"


def _of_the_weights(run: Run, rank: int, own: torch.Tensor) -> str | None:
    weight, xs, dys = _drawn(run, rank)
    ys, _, dws = _taken(run, rank)
    m, rows = len(xs), len(xs[0])
    if m > 1 and any(same(own, one) for one in dws):
        return (
            f"rank {rank} has the weights' gradient of one micro-batch alone: each W adds to weight.grad, and takes"
            " nothing away"
        )
    if same(own * rows, sum(dws[1:], dws[0])):
        return f"rank {rank} has 1/{rows} of the weights' gradient: dz^T x is a sum over the rows, not their mean"
    if same(own, sum((dy.T @ x for dy, x in zip(dys, xs, strict=True)), weight * 0)):
        return (
            f"rank {rank}: W has multiplied x with dy where dz belongs: tanh lies between, dz = dy (1 - y^2), and both"
            " parts need it"
        )
    dzs = [dy * (1 - y * y) for dy, y in zip(dys, ys, strict=True)]
    gone_forward = [min(2, m - 1), *[m - 1] * (m - 1)]  # who had done so last when W of j came
    gone_back = [min(1, m - 1), *[m - 1] * (m - 1)]
    if same(own, sum((dzs[j].T @ xs[gone_forward[j]] for j in range(m)), weight * 0)):
        return (
            f"rank {rank}: W took the activations of the micro-batch that went forward last: others have gone forward"
            " since its own, so keep them by the number j"
        )
    if same(own, sum((dzs[gone_back[j]].T @ xs[j] for j in range(m)), weight * 0)):
        return (
            f"rank {rank}: W took dz of the micro-batch whose I came last: I of others comes before W of this one, so"
            " keep it by the number j"
        )
    return None


def holds_on(run: Run) -> str | None:
    """A rule: what a micro-batch has left behind is let go by its W."""
    for rank, seen in enumerate(_seen(run)):
        if "kept" in seen:
            return (
                f"rank {rank} still holds x of micro-batch {seen['kept']} after its W: nobody needs it any more, `pop`"
                " takes it out; else memory grows with m"
            )
    return None


def _seen(run: Run) -> list[dict[str, Any]]:
    return [after[-1] for after in run.after]


def _drawn(run: Run, rank: int) -> Any:
    from kit.topics.pipeline.drives_b import drawn

    seed, m, _ = run.case.arguments[rank]
    return drawn(seed, m)


def _taken(run: Run, rank: int) -> Any:
    """y, dx and dA by micro-batch."""
    from kit.topics.pipeline.drives_b import taken

    seed, m, _ = run.case.arguments[rank]
    return taken(seed, m)


# ------------------------------------------------------------------------------------------------- a row of ZB-H1


def whole_backward(run: Run) -> str | None:
    """A rule: backward passes are parted."""
    for rank, row in enumerate(written(run).rows):
        whole = next((action for action in row if action.kind not in (FORWARD, INPUT, WEIGHT)), None)
        if whole is not None:
            return (
                f"rank {rank} takes B{whole.micro_batch} at once: here it is parted into I{whole.micro_batch}, for"
                f" which the stage before waits, and W{whole.micro_batch}, for which nobody does"
            )
    return None


def _ahead(plan: Schedule, rank: int) -> int:
    """Forwards before the first backward."""
    kinds = [action.kind for action in plan.rows[rank]]
    return next((i for i, kind in enumerate(kinds) if kind in PASSES_BACK), len(kinds))


def _owed(plan: Schedule, rank: int) -> int:
    """I before the first W."""
    kinds = [action.kind for action in plan.rows[rank]]
    return kinds[: kinds.index(WEIGHT) if WEIGHT in kinds else len(kinds)].count(INPUT)


def holds_more_than_1f1b(run: Run) -> str | None:
    """A rule: no rank holds more activations than 1F1B's first."""
    plan, p, m = written(run), run.case.world, run.case.size
    for rank in range(p):
        held, enough = most_held(plan, rank), min(m, p)
        if held <= enough:
            continue
        if _ahead(plan, rank) > p - rank:
            why = f"p - 1 - r = {p - 1 - rank} forwards ahead are enough, then each I follows a forward"
        elif _owed(plan, rank) > rank + 1:
            why = (
                f"activations stay until W, which it puts off too long: it lets r = {rank} I go by before its first W,"
                " then one W follows each I"
            )
        else:
            why = "once its first W is due, one W follows each I"
        return (
            f"with {micro_batches(m)} rank {rank} holds {counted(held, 'activation')} at once, p = {p} allowed: {why}"
        )
    return None


def slower_than_zb_h1(run: Run) -> str | None:
    """A rule: together the rows take as long as ZB-H1, in units of F, I and W."""
    plan, p, m = written(run), run.case.world, run.case.size
    took, enough = simulated(plan).seconds, simulated(schedule("ZBH1", p, m)).seconds
    if took <= enough:
        return None
    few = next((rank for rank in range(p) if _ahead(plan, rank) < min(m, p - rank)), None)
    soon = next((rank for rank in range(p) if _owed(plan, rank) < min(m, rank + 1)), None)
    late = next((rank for rank in range(p) if _owed(plan, rank) > rank + 1), None)
    if few is not None:
        why = f"rank {few} goes back too early and then waits: it goes p - 1 - r = {p - 1 - few} forwards ahead first"
    elif soon is not None:
        why = (
            f"rank {soon} does a W while the rank before it waits for an I: it lets r = {soon} I go by before its first"
            " W, and has as many W left for the end"
        )
    elif late is not None:
        why = f"rank {late} saves more W for the end than there is time to fill: r = {late} of them"
    else:
        why = "some rank does a W where others wait for its F or I, or waits where it could do a W"
    return f"with {micro_batches(m)} this takes {took:g} units where {enough:g} are enough: {why}"


# ------------------------------------------------------------------------------------------------ the norm of all


def _sums(run: Run) -> list[float]:
    return [sum(float(one.double().square().sum()) for one in own) for (own,) in run.case.arguments]


def not_the_norm(run: Run, expected: Sequence[Any]) -> str | None:
    """Another number than the root of the sum of all squares."""
    sums, p = _sums(run), run.case.world
    total, roots = sum(sums), [math.sqrt(one) for one in sums]
    parts = [math.sqrt(float(one.double().square().sum())) for (own,) in run.case.arguments for one in own]
    known = (
        (total, "this is the square of the norm: take its root, once, after all have added up"),
        (sum(roots), "norms of stages were added: squares add up, norms do not; the root comes last"),
        (sum(parts), "norms of single gradients were added: squares add up, norms do not; the root comes last"),
        (
            math.sqrt(sum(roots)),
            "the root was taken twice, on each stage and at the end: each stage gives its sum of squares",
        ),
        (max(roots), "this is the norm of the largest stage: the sum of all is asked for, not the maximum"),
        (math.sqrt(total / p), f"the sum was divided by {p}: stages hold different weights, so nothing is averaged"),
        (
            abs(sum(float(one.double().sum()) for (own,) in run.case.arguments for one in own)),
            "gradients were added as they are: each number is squared before, or plus and minus cancel",
        ),
    )
    for value, sentence in known:
        if not math.isclose(value, math.sqrt(total), rel_tol=1e-4) and _everywhere(run, value):
            return f"every rank returned {value:.6g} where {math.sqrt(total):.6g} is right: {sentence}"
    return None


@on_each_result
def own_norm(run: Run, rank: int, got: Any, right: Any) -> str | None:
    """The norm of one stage."""
    root = math.sqrt(_sums(run)[rank])
    if is_tensor(got) and got.numel() == 1 and math.isclose(float(got), root, rel_tol=1e-4):
        return (
            f"rank {rank} returned the norm of its own stage, {root:.6g}, and {float(right):.6g} is that of all: were"
            " it to clip by it, each stage would be scaled differently"
        )
    return None


def one_number(run: Run) -> str | None:
    """A rule: what travels is one number."""
    for part in run.trace.ranks:
        large = next((one for one in part.operations if one.payload > 8), None)
        if large is not None:
            return (
                f"rank {part.rank} gave {large.name} {large.payload} bytes, from {line(large, run)}: a stage's sum of"
                " squares is one number, 4 bytes"
            )
    return None


def gradients_changed(run: Run) -> str | None:
    """A rule: the gradients stay as they are."""
    for rank, (before, after) in enumerate(zip(run.case.arguments, run.after, strict=True)):
        if not all(same(left, sent, 0.0) for sent, left in zip(before[0], after[0], strict=True)):
            return f"rank {rank} changed its gradients: the optimizer needs them as they are, only their squares add up"
    return None


def _everywhere(run: Run, value: float) -> bool:
    return all(is_tensor(one) and one.numel() == 1 and _near(float(one), value) for one in run.results)


def _near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-4)


# ------------------------------------------------------------------------------------------- a step without a barrier


def no_pair(run: Run, expected: Sequence[Any]) -> str | None:
    for rank, got in enumerate(run.results):
        if not is_tensor(got):
            what = "nothing" if got is None else f"a {type(got).__name__}"
            return f"rank {rank} returned {what} where two tensors are asked for: the weights early, and in the end"
    return None


@on_each_result
def wrong_early(run: Run, rank: int, got: Any, right: Any) -> str | None:
    """The weights with which a stage goes on at once."""
    case = run.case
    early, half = early_steps(case)[rank], len(right) // 2
    if not is_tensor(got) or got.shape != right.shape or same(got[:half], early):
        return None
    went, sums, most = same(got[:half], stepped(case, rank, 1.0)), squares(case), limit_of(case) ** 2
    if went and sums[rank] <= most < sum(sums[: rank + 1]):
        return (
            f"rank {rank} stepped early because its own gradient is within the limit: what the stages before it have"
            " sent counts as well"
        )
    if went:
        return f"rank {rank} stepped early though the squares so far are beyond limit^2: then it waits for the verdict"
    if same(got[:half], final_steps(case)[rank]):
        return (
            f"rank {rank} gave as early what it could know only at the end: early is the whole step, or none, by what"
            " has come from the stages before"
        )
    if same(got[:half], stepped(case, rank, 0.0)):
        return (
            f"rank {rank} has not stepped early though the squares so far, its own among them, are within limit^2: it"
            " waited for nothing"
        )
    return f"rank {rank}: the early weights are neither those before the step nor those after all of it"


@on_each_result
def wrong_final(run: Run, rank: int, got: Any, right: Any) -> str | None:
    """The weights after the verdict."""
    case = run.case
    if not is_tensor(got) or got.shape != right.shape:
        return None
    half = len(right) // 2
    final, sums, most = got[half:], squares(case), limit_of(case) ** 2
    weight = stepped(case, rank, 0.0)
    scale = limit_of(case) / math.sqrt(sum(sums))
    early = early_steps(case)[rank]
    if scale > 1 and same(final, stepped(case, rank, scale)):
        return (
            f"rank {rank} made its gradient {scale:.3g} times larger: the norm is within the limit, and clipping never"
            " stretches"
        )
    if sum(sums) > most and same(final, early + (stepped(case, rank, scale) - weight)) and not same(early, weight):
        return (
            f"rank {rank} has taken both steps, the whole one and the clipped one: go back to the weights before, then"
            " take the clipped one"
        )
    last = rank == case.world - 1
    if not last and not any(one.name == "recv" and one.peer == rank + 1 for one in run.trace.ranks[rank].operations):
        return (
            f"rank {rank} decided by the norm of the stages up to its own: the last one alone knows all of it, and"
            " sends it back up the line"
        )
    if sum(sums) > most and same(final, early) and not same(early, weight):
        return (
            f"rank {rank} kept the whole step that it took early: the norm of all was beyond the limit, so take it back"
        )
    if sum(sums) > most and same(final, weight):
        return f"rank {rank} has not stepped in the end: beyond the limit the gradient is scaled by limit / norm"
    if sum(sums) > most and same(final, stepped(case, rank, limit_of(case) / sum(sums))):
        return f"rank {rank} divided by the square of the norm: the factor is limit / norm"
    if same(final, stepped(case, rank, min(1.0, limit_of(case) / math.sqrt(sums[rank])))):
        return f"rank {rank} clipped by the norm of its own stage: each stage would be scaled differently"
    return None


@on_each_rank
def one_message_each_way(run: Run, part: RankTrace) -> str | None:
    """A rule: a number on, a number back."""
    p, sent = run.case.world, sends(part)
    enough = (part.rank < p - 1) + (part.rank > 0)
    if len(sent) > enough:
        return (
            f"rank {part.rank} sent {counted(len(sent), 'message')} where {enough} {'is' if enough == 1 else 'are'}"
            f" enough, from {line(sent[-1], run)}: a number on to the next stage, a number back to the one before"
        )
    large = next((one for one in sent if one.payload > 8), None)
    if large is not None:
        return f"rank {part.rank} sent {large.payload} bytes at once, from {line(large, run)}: one number is enough"
    return None
