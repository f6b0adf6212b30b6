"""What lab 04 has to say: the usual mistakes with shards of weights, gradients and optimizers, each by its sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kit.grade.traffic import collectives
from kit.grade.values import all_same, is_tensor, on_each_result, same
from kit.grade.words import counted, line, size
from kit.topics.zero.cases import FLOAT, LR, MICRO_BATCHES, STEPS, padded, padded_shard, stepped

if TYPE_CHECKING:
    import torch

    from kit.grade.exercise import Run

# ------------------------------------------------------------------------------------------- stage 1: one step


@on_each_result
def not_whole(run: Run, rank: int, got: Any, right: Any) -> str | None:
    """What a step returned has another number of elements than the weights."""
    count, shard = run.case.size, padded_shard(run.case)
    if not is_tensor(got) or got.dim() != 1 or len(got) == len(right):
        return None
    returned = f"rank {rank} returned {counted(len(got), 'element')}"
    if len(got) == shard * run.case.world > count:
        return f"{returned} where {count} are right: the padding was not cut off, and would leak into the weights"
    if len(got) == shard != count:
        return f"{returned}, its own shard of {count}: the other ranks' shards have to be gathered"
    if len(got) == count // run.case.world * run.case.world:
        return f"{returned} where {count} are right: shards of P // n leave a remainder; pad to a multiple of n"
    return f"{returned} where {count} are right"


def not_gathered(run: Run, expected: Sequence[Any]) -> str | None:
    """After the first step every rank has its own shard right, and somebody not those of the others."""
    n, count = run.case.world, run.case.size
    pairs = list(zip(run.results, expected, strict=True))
    if count < n or not all(is_tensor(got) and got.shape == right.shape for got, right in pairs):
        return None
    first = [(padded(got[:count], n), padded(right[:count], n)) for got, right in pairs]  # each (n, ceil(P/n))
    if not all(same(got[rank], right[rank]) for rank, (got, right) in enumerate(first)):
        return None
    rank = next((rank for rank, (got, right) in enumerate(first) if not same(got, right)), None)
    if rank is None:
        return None
    return (
        f"rank {rank}'s own shard is right, those of the others are not: their new weights have to reach this rank, by"
        " an all-gather after the step"
    )


def other_weights(run: Run, expected: Sequence[Any]) -> str | None:
    """After the first step: gradients in place of weights, weights in another order, or weights on rank 0 alone."""
    count, pairs = run.case.size, list(zip(run.results, expected, strict=True))
    if not all(is_tensor(got) and got.shape == right.shape for got, right in pairs):
        return None
    first = [got[:count] for got, _ in pairs]
    right, weights, mean = expected[0][:count], run.case.facts["weights"], run.case.facts["means"][0]
    if all(same(got, right) for got in first):
        return None
    if all(same(got, mean) for got in first):
        return "what was gathered is the mean gradient: the new weights of each shard are asked for"
    if count > 1 and all(same(got.sort().values, right.sort().values) for got in first):
        return (
            "the weights are right, in another order: shard r is row r of n rows, one after the other, when they are"
            " cut and when they are put together"
        )
    if same(first[0], right) and not any(same(got, right) for got in first[1:]):
        return "only rank 0 has all new weights: every rank needs them, by an all-gather"
    factor = float((weights - first[0]).abs().sum() / (weights - right).abs().sum())
    if factor > 1e-3 and all(same(weights - got, (weights - right) * factor, 1e-3) for got in first):
        return f"every weight went {factor:.3g} times as far as it should: the step's length is `lr`"
    return None


def wrong_place(run: Run, expected: Sequence[Any]) -> str | None:
    """The weights of one shard were stepped against the gradient of another."""
    n, facts = run.case.world, run.case.facts
    weights, means = padded(facts["weights"], n), padded(facts["means"][0], n)  # (n, ceil(P/n))
    if not all(is_tensor(got) for got in run.results) or run.case.size < 2 * n:
        return None
    first = [padded(got[: run.case.size], n) for got in run.results]
    if all(same(got, _adamw(weights, means)) for got in first):
        return None  # AdamW's first step is one of signs: another shard's may be the same
    for shift in range(1, n):
        others = [(rank + shift) % n for rank in range(n)]
        if all(same(got, _adamw(weights[others], means)) for got in first):
            return (
                f"wrong shard: in the place of rank 0's shard lie the weights of rank {others[0]}'s, stepped against"
                " rank 0's gradient: both are row r of n, on rank r"
            )
        if all(same(got, _adamw(weights, means[others])) for got in first):
            return (
                f"wrong shard: rank 0's weights were stepped against the gradient of rank {others[0]}'s shard: both"
                " are row r of n, on rank r"
            )
    return None


def wrong_step(run: Run, expected: Sequence[Any]) -> str | None:
    """What the weights would be with one of the usual mistakes in what is kept from step to step."""
    if not all(is_tensor(got) and got.shape == right.shape for got, right in zip(run.results, expected, strict=True)):
        return None
    for told, would_be in _mistakes(run):
        if all(same(got, would_be) for got in run.results):
            return told
    size = run.case.size
    for step in range(STEPS):
        part = slice(step * size, (step + 1) * size)
        if all(same(got[part], right[part]) for got, right in zip(run.results, expected, strict=True)):
            continue
        if step == 0:
            return None
        return (
            f"step {step} is right, step {step + 1} is not: each call brings new weights and new gradients, and only"
            " what is in `state` is left of the call before (an optimizer kept there goes on with the tensors that it"
            " was made with)"
        )
    return None


def _mistakes(run: Run) -> Iterator[tuple[str, torch.Tensor]]:
    means, own = run.case.facts["means"], run.case.facts["own"]
    first = "the first step is right, the second is not: "
    yield (
        f"{first}it began without moments, as if there had been no first; what AdamW remembers stays in `state`",
        _trained(run, means, keep=False),
    )
    yield (
        f"{first}it began with new moments, though it counted on; m and v stay in `state` too",
        _trained(run, means, keep=False, bias=lambda step: step),
    )
    yield (
        f"{first}its bias correction was that of step 1 again; `state` also counts the steps, from 1",
        _trained(run, means, bias=lambda step: 1),
    )
    yield (
        "the bias correction of step 1 was that of step 2: steps count from 1",
        _trained(run, means, bias=lambda step: step + 1),
    )
    yield (
        "every rank stepped its shard against its own gradient: the sum over the ranks is missing",
        _trained(run, [_each_its_own([each[step] for each in own], run.case.world) for step in range(len(means))]),
    )
    yield (
        "the weights never change: what was stepped has to reach the weights that are gathered",
        _trained(run, [None] * len(means)),
    )


def _each_its_own(gradients: Sequence[torch.Tensor], n: int) -> torch.Tensor:
    """Shard r of rank r's own gradient, put together: (P,)."""
    import torch

    rows = [padded(gradient, n)[rank] for rank, gradient in enumerate(gradients)]
    return torch.cat(rows)[: len(gradients[0])]


def _trained(
    run: Run, gradients: Sequence[Any], keep: bool = True, bias: Callable[[int], int] | None = None
) -> torch.Tensor:
    """The weights after every step, end to end. keep: moments are; bias: the step that the correction believes in."""
    import torch

    w = run.case.facts["weights"]
    found, memory = [], None
    for number, g in enumerate(gradients, 1):
        believed = bias(number) if bias else (number if keep else 1)
        memory = memory if keep else None
        if g is not None:
            w, memory = _step(w, g, memory, believed)
        found.append(w)
    return torch.cat(found)


def _adamw(w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return _step(w, g, None, 1)[0]


def _step(w: torch.Tensor, g: torch.Tensor, memory: Any, step: int) -> tuple[torch.Tensor, Any]:
    """AdamW with torch's defaults (Loshchilov and Hutter 2019): new weights, and (m, v)."""
    m, v = memory if memory else (g * 0, g * 0)
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    away = (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
    return w * (1 - LR * 0.01) - LR * away, (m, v)


def hidden_sum(run: Run) -> str | None:
    """A rule: moments of the mean gradient, not of the sum. The weights do not show it, so they must be right."""
    import torch

    n, expected = run.case.world, stepped(run.case)
    if not all_same(run.results, expected):
        return None
    memory: Any = None
    for number, mean in enumerate(run.case.facts["means"], 1):
        _, memory = _step(mean * 0, mean, memory, number)
    m = padded(memory[0], n)  # (n, ceil(P/n))
    kept = [arguments[-1]["kept"] for arguments in run.after]
    whole = torch.cat([memory[0], memory[0].new_zeros(-run.case.size % n)])
    unseen = "AdamW divides a gradient by its own size, so these weights do not show it; eps, and clipping, would"
    for rank, tensors in enumerate(kept):
        found = (_times(x, right) for x in tensors for right in (m[rank], memory[0], whole))
        times = next((factor for factor in found if factor is not None), 1.0)
        if abs(times - n) < 1e-3:
            why = "the sum was not divided by the number of ranks"
        else:
            why = f"the sum of {n} ranks was divided by {n / times:.4g}" if abs(times - 1) > 1e-3 else ""
        if why:
            return f"rank {rank}'s first moment is {times:.3g} times the right one: {why}. {unseen}"
    return None


def _times(x: torch.Tensor, right: torch.Tensor) -> float | None:
    """The factor by which x is longer than `right` and otherwise the same: above 0; None where there is none."""
    if x.shape != right.shape or not bool(right.any()):
        return None
    factor = float((x.double() * right.double()).sum() / (right.double() ** 2).sum())
    return factor if factor > 1e-6 and same(x, right * factor, 1e-4) else None


def remembers_its_shard(run: Run) -> str | None:
    """A rule about memory: two moments of one shard are all that a rank keeps."""
    enough = 2 * padded_shard(run.case)
    for rank, arguments in enumerate(run.after):
        kept = sum(x.numel() for x in arguments[-1]["kept"])
        if kept > enough + 2:  # a step, and a rate, as tensors
            made = collectives(run.trace.ranks[rank])
            where = f", from {line(made[0], run)}" if made else ""
            return (
                f"rank {rank} remembers {counted(kept, 'element')} from step to step where {enough} are enough: two"
                f" moments of its own shard, P/n each{where}. Where every rank steps the whole vector, nothing of the"
                " optimizer is sharded"
            )
    return None


# ------------------------------------------------------------------------ stage 2: gradients of m micro-batches


def wrong_sum(run: Run, expected: Sequence[Any]) -> str | None:
    """Micro-batches that were lost, divided too often, or never summed over the ranks."""
    import torch

    n, own = run.case.world, run.case.facts["own"]
    shards = [torch.stack([padded(g, n) for g in each]) for each in own]  # of each rank (m, n, ceil(P/n))
    means = torch.stack(shards).sum(0) / n  # (m, n, ceil(P/n))
    alone = torch.stack([shard.sum(0)[rank] for rank, shard in enumerate(shards)])  # (n, ceil(P/n))
    halved = means[0] * 0
    for mean in means:
        halved = halved / n + mean
    told = {
        "only the last micro-batch is left: a shard is added to what was kept before": means[-1],
        "only the first micro-batch is left: what comes later is added to it": means[0],
        f"every call divided by {n} again what was kept before: divide what is new, then add": halved,
        "every rank has its own gradients only: the sum over the ranks is missing": alone / n,
        "every rank has its own gradients only, the sum over the ranks is missing": alone,
        f"divided by {MICRO_BATCHES}, too: the micro-batches' losses are divided already": means.sum(0) / MICRO_BATCHES,
    }
    for sentence, rows in told.items():
        if all_same(run.results, list(rows)):
            return sentence
    if all_same(run.results, [means.sum(0)[0]] * n):
        return "every rank keeps row 0 of n: rank r keeps row r"
    for shift in range(1, n):
        if all_same(run.results, [means.sum(0)[(rank + shift) % n] for rank in range(n)]):
            return f"wrong shard: rank 0 has that of rank {shift % n}; rank r keeps row r of n"
    return None


@on_each_result
def not_a_shard(run: Run, rank: int, got: Any, right: Any) -> str | None:
    """Something else was kept than a shard, padded."""
    n, count, shard = run.case.world, run.case.size, padded_shard(run.case)
    if not is_tensor(got) or got.shape == right.shape:
        return None
    keeps = f"rank {rank} keeps {counted(len(got), 'element')}"
    if len(got) in (count, shard * n):
        return f"{keeps} where its shard of {shard} is enough: whole gradients are what this stage is to get rid of"
    if len(got) == count // n + (rank < count % n):
        return (
            f"{keeps} where {shard} are right: shards are equal, so that collectives can be; add zeros at the end of"
            " the gradient"
        )
    return None


# -------------------------------------------------------------------------------------- stage 3: weights that are lent


@on_each_result
def out_of_order(run: Run, rank: int, got: Any, right: Any) -> str | None:
    """Output or gradients are those of other weights, or of weights that were gathered once only."""
    outputs = run.case.arguments[0][2].shape[0] * run.case.facts["whole"][-1].shape[1]  # elements of y
    if not is_tensor(got) or got.shape != right.shape:
        return None
    if not same(got[:outputs], right[:outputs]):
        return (
            f"rank {rank}'s output is wrong: the whole has rank 0's shard first, then rank 1's, and so on, and the"
            " weight is its beginning, in its own shape"
        )
    return (
        f"rank {rank}'s output is right, its gradients are not: backward reads the very memory that forward read, so"
        " the second gather() has to fill the same tensor again"
    )


def frees(run: Run) -> str | None:
    """A rule about memory: one layer is whole at a time, and none in the end."""
    largest = padded_shard(run.case, run.case.facts["largest"]) * run.case.world
    for rank, arguments in enumerate(run.after):
        most, left = arguments[-1]["most"], arguments[-1]["left"]
        if most > largest or left:
            made = collectives(run.trace.ranks[rank])
            where = line(made[-1], run)
            what = (
                f"rank {rank} has {size(most * FLOAT)} of whole weights at once where {size(largest * FLOAT)}, the"
                f" largest layer, are enough (gathered at {where})"
                if most > largest
                else f"rank {rank} still has {size(left * FLOAT)} of whole weights when everything was freed"
            )
            return (
                f"{what}: autograd keeps the tensor for backward, so its memory goes only by"
                " `untyped_storage().resize_(0)`, and there is none before the first gather() either"
            )
    return None
