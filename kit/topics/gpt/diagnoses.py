"""What lab 10 has to say: usual mistakes with accumulation, validation, hashes and shards, each by its sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kit.grade.values import all_same, is_tensor, on_each_result, same
from kit.topics.gpt.cases import ALIKE, ORDER, batch_gradient, mean_gradient, padded

if TYPE_CHECKING:
    from kit.grade.exercise import Run

# ------------------------------------------------------------------------------------------------- accumulation


def wrong_gradient(run: Run, expected: Sequence[Any]) -> str | None:
    """What the gradient would be with one of the usual mistakes."""
    n, m, right = run.case.world, run.case.size, expected[0]
    if all_same(run.results, expected):
        return None
    own = [mean_gradient(run.case, rank) for rank in range(n)]
    last = [batch_gradient(run.case, batches[-1]) for batches in run.case.facts["own"]]
    known: list[tuple[list[Any], str]] = [
        (
            own,
            "every rank has the gradient of its own micro-batches: the mean over the ranks is missing, and replicas"
            " would part with the next step",
        ),
    ]
    by = f"{m} micro-batches twice, or by {n} ranks twice" if m == n else f"{n} ranks twice"
    known += [([right / n] * n, f"divided by {by}: every rank has 1/{n} of the right gradient")]
    if m > 1:
        known += [
            (
                [right * m] * n,
                f"every rank has {m} times the right gradient: `backward()` adds up, and the loss of each of {m}"
                f" micro-batches was not divided by {m}; clipping and AdamW hide it, the curve does not",
            ),
            (
                [right * m * n] * n,
                f"every rank has {m * n} times the right gradient: divided neither by {m} micro-batches nor by {n}"
                " ranks",
            ),
            ([right / m] * n, f"divided by {m} micro-batches twice: every rank has 1/{m} of the right gradient"),
            (
                [sum(last) / n] * n,
                "this is the gradient of the last micro-batch: those before it were forgotten, since something set the"
                " gradient to nothing in between",
            ),
            (
                [sum(last) / n / m] * n,
                f"this is 1/{m} of the gradient of the last micro-batch: those before it were forgotten, since"
                " something set the gradient to nothing in between",
            ),
        ]
    for would_be, sentence in known:
        if all_same(run.results, would_be):
            return sentence
    return None


# ------------------------------------------------------------------------------------------------- validation


def wrong_mean(run: Run, expected: Sequence[Any]) -> str | None:
    """Another mean than that over all tokens."""
    right, n = float(expected[0]), run.case.world
    pairs = [(losses.double(), tokens.double()) for losses, tokens in run.case.arguments]
    sums, counts = [float((x * k).sum()) for x, k in pairs], [float(k.sum()) for _, k in pairs]
    each = [total / count for total, count in zip(sums, counts, strict=True)]
    plain = [float(x.mean()) for x, _ in pairs]
    many = sum(len(x) for x, _ in pairs)
    known = (
        (sum(each) / n, "the ranks' means were averaged, and ranks have looked at different numbers of tokens: sums and"
         " counts travel, the division comes last"),
        (sum(plain) / n, "every batch and every rank counts alike here, and their numbers of tokens differ: weigh each"
         " loss by its tokens"),
        (sum(float(x.sum()) for x, _ in pairs) / many, "every batch counts alike here, and they have different numbers"
         " of tokens: weigh each loss by its tokens"),
        (sum(each), "the ranks' means were added: sums and counts travel, the division comes last"),
        (sum(sums), "this is the sum over all tokens: it is still to be divided by their number"),
        (right / n, f"divided by {n} ranks as well: the number of all tokens is enough"),
    )  # fmt: skip
    for value, sentence in known:
        if not _near(value, right) and all(_near(got, value) for got in run.results):
            return f"every rank returned {value:.6g} where {right:.6g} is right: {sentence}"
    if all(_near(got, value) for got, value in zip(run.results, each, strict=True)):
        return "every rank returned the mean of its own tokens: what the others have seen is missing"
    return None


def _near(got: Any, value: float) -> bool:
    number = is_tensor(got) and got.numel() == 1 or isinstance(got, float)
    return number and math.isclose(float(got), value, rel_tol=1e-4)


# ------------------------------------------------------------------------------------------------- hashes


def wrong_name(run: Run, expected: Sequence[Any]) -> str | None:
    """Another tensor, or none, or not on all ranks."""
    facts, right = run.case.facts, expected[0]
    got, parted = run.results, facts["parted"]
    if any(name is not None and not isinstance(name, str) for name in got):
        return None
    if facts["kind"] == ALIKE and any(got):
        return f"all tensors are the same on all ranks, and {next(filter(None, got))!r} was named: '' is right"
    if len(parted) > 1 and all(name == parted[-1] for name in got):
        return (
            f"{parted[-1]} is the last to differ, {right} the first: what comes later differs because of it, so stop at"
            " the first"
        )
    if not any(got):
        if facts["kind"] == ORDER:
            return (
                f"two numbers of {right} have changed places on the last rank, and it was not seen: sums and means do"
                " not know of order, a hash of the bytes does"
            )
        return (
            f"{right} differs on the last rank, and it was not seen: what is compared has to tell every bit, and has to"
            " come from every rank"
        )
    if len(set(got)) > 1:
        knows = [rank for rank, name in enumerate(got) if name == right]
        return (
            f"the ranks do not agree: rank {knows[0] if knows else 0} names {right}, another says"
            f" {next(name for name in got if name != right)!r}. Each has to see the hashes of all ranks"
        )
    return None


# ------------------------------------------------------------------------------------------------- fewer ranks


@on_each_result
def wrong_shard(run: Run, rank: int, got: Any, right: Any) -> str | None:
    """What a rank has in the place of its shard."""
    case = run.case
    whole, old, n = case.facts["whole"], case.facts["old"], case.world
    if not is_tensor(got) or got.dim() != 1:
        return None
    shards = padded(whole, old)
    if len(got) > len(right):
        return (
            f"rank {rank} returned {len(got)} elements where {len(right)} are right: of an old shard only what lies"
            " between the new one's ends"
        )
    if rank < old and old != n and same(got, shards[rank]):
        return (
            f"rank {rank} has shard {rank} of the {old} that were saved, {len(got)} elements: {n} ranks cut the same"
            f" {len(whole)} elements elsewhere"
        )
    if len(got) < len(right) and same(got, right[: len(got)]):
        return (
            f"rank {rank} returned {len(got)} elements where {len(right)} are right: shards are equally long, with"
            " zeros behind the last element"
        )
    if len(got) == len(right) and not same(got, right):
        first = int((got != right).nonzero()[0])
        return (
            f"rank {rank} has another number at place {first} of its shard, element"
            f" {rank * len(right) + first} of {len(whole)}: an old shard has ceil(P / old) = {shards.shape[1]}"
            f" elements, a new one {len(right)}"
        )
    return None


def reads_too_much(run: Run) -> str | None:
    """A rule: no shard is read that has nothing of this rank's."""
    case = run.case
    count, old, n = case.size, case.facts["old"], case.world
    was, now = -(-count // old), -(-count // n)
    for rank, after in enumerate(run.after):
        read = after[-1]["read"]
        ends = rank * now, min((rank + 1) * now, count)
        useless = [k for k in read if min(ends[1], (k + 1) * was) <= max(ends[0], k * was)]
        if useless:
            return (
                f"rank {rank} read shard {useless[0]} of {old}, and nothing of its own is in there: of a large model"
                " every shard is gigabytes, and all of them do not fit"
            )
        if len(read) > len(set(read)):
            return f"rank {rank} read a shard {len(read)} times in all where {len(set(read))} are enough: once each"
    return None
