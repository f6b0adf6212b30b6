"""The usual mistakes, each with its own sentence. Every function here is, or makes, a `Diagnosis` or a `Rule`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations, product
from typing import TYPE_CHECKING, Any

from kit.grade.values import all_same, is_tensor, on_each_result, same
from kit.trace.text import counted, named

if TYPE_CHECKING:
    import torch

    from kit.grade.exercise import Diagnosis, Run


def input_changed(run: Run) -> str | None:
    """A rule: the function wrote into an argument where a new tensor is promised."""
    for rank, (before, after) in enumerate(zip(run.case.arguments, run.after, strict=True)):
        for sent, left in zip(before, after, strict=True):
            if is_tensor(sent) and not same(left, sent, 0.0):
                return (
                    f"rank {rank} changed its input in place, where the input shall stay as it was: "
                    "receive and add into a new tensor, for instance into x.clone()"
                )
    return None


def input_returned(run: Run) -> str | None:
    """A rule: the result is the argument itself, so that a change to one would later show in the other."""
    for rank, (result, arguments) in enumerate(zip(run.results, run.after, strict=True)):
        if any(is_tensor(result) and result is argument for argument in arguments):
            return f"rank {rank} returned its input itself, where a new tensor is promised: return a copy, x.clone()"
    return None


def nothing_arrived(run: Run, expected: Sequence[Any]) -> str | None:
    """Some ranks are wrong that did not receive any message. For exercises with send and receive only."""
    without = [
        rank
        for rank, (got, right) in enumerate(zip(run.results, expected, strict=True))
        if not same(got, right) and all(one.name == "send" for one in run.trace.ranks[rank].operations)
    ]
    if not without:
        return None
    return f"{named(without)} received nothing, and cannot have the right values without a message"


def nothing_returned(run: Run, expected: Sequence[Any]) -> str | None:
    """Some ranks, or all, return None."""
    empty = [
        rank
        for rank, (got, right) in enumerate(zip(run.results, expected, strict=True))
        if got is None and right is not None
    ]
    if not empty:
        return None
    return f"{named(empty)} returned nothing: every rank returns its result, on every way through the function"


def not_divided(run: Run, expected: Sequence[Any]) -> str | None:
    """The sum where the mean is asked for."""
    if _all_scaled(run, expected, run.case.world):
        return (
            f"every rank has {run.case.world} times the right value: the sum was not divided by the world size, or what"
            " was divided is another tensor (`g = g / n` makes a new one, `g /= n` changes g itself)"
        )
    return None


def divided(run: Run, expected: Sequence[Any]) -> str | None:
    """The mean where the sum is asked for."""
    if _all_scaled(run, expected, 1 / run.case.world):
        return f"every rank has 1/{run.case.world} of the right value: the sum is asked for, not the mean"
    return None


@on_each_result
def wrong_source(run: Run, rank: int, got: Any, right: Any) -> str | None:
    """A rank holds the tensor of another rank than the source. Needs `facts['source']`."""
    source = run.case.facts["source"]
    for other in range(run.case.world):
        if other not in (source, rank) and same(got, run.case.arguments[other][0]):
            return f"wrong source: rank {rank} has the tensor of rank {other} where rank {source} is the source"
    return None


def own_input(run: Run, expected: Sequence[Any]) -> str | None:
    """Some ranks return what they put in."""
    kept = [
        rank
        for rank, (got, right) in enumerate(zip(run.results, expected, strict=True))
        if not same(got, right) and is_tensor(got) and same(got, run.case.arguments[rank][0])
    ]
    if not kept:
        return None
    return f"{named(kept)} returned what went in: what arrives has to be in the result"


def only_rank_zero(run: Run, expected: Sequence[Any]) -> str | None:
    """Right on rank 0, wrong on all others."""
    right = [same(got, wanted) for got, wanted in zip(run.results, expected, strict=True)]
    if right[0] and not any(right[1:]) and len(right) > 1:
        return "only rank 0 is right: the other ranks never got the result"
    return None


def same_everywhere(cause: str) -> Diagnosis:
    """Every rank returns the same where results differ by rank. cause: 'the seed is shared by all ranks'."""

    def diagnosis(run: Run, expected: Sequence[Any]) -> str | None:
        alike = all(same(got, run.results[0]) for got in run.results)
        differ = not all(same(right, expected[0]) for right in expected)
        return f"every rank returned the same, and each should have its own: {cause}" if alike and differ else None

    return diagnosis


def neighbour(distance: int, sentence: str) -> Diagnosis:
    """Every rank has the input of the rank `distance` to its left, which is not the one asked for."""

    def diagnosis(run: Run, expected: Sequence[Any]) -> str | None:
        n = run.case.world
        there = [run.case.arguments[(rank - distance) % n][0] for rank in range(n)]
        return sentence if all_same(run.results, there) and not all_same(run.results, expected) else None

    return diagnosis


@on_each_result
def not_cut(run: Run, rank: int, got: Any, right: Any) -> str | None:
    """The right values with padding behind them."""
    if is_tensor(got) and got.dim() == 1 and len(got) > len(right) and same(got[: len(right)], right):
        return f"rank {rank} returned {len(got)} elements where {len(right)} are right: the padding was not cut off"
    return None


def one_for_all(split: Callable[[torch.Tensor, int], Sequence[torch.Tensor]]) -> Diagnosis:
    """One and the same chunk in every place: a list that holds one tensor n times. split: as in `chunk_order`."""

    @on_each_result
    def diagnosis(run: Run, rank: int, got: Any, right: Any) -> str | None:
        n = run.case.world
        if not is_tensor(got) or got.shape != right.shape or len(right) < n:
            return None
        mine, chunks = split(got, n), split(right, n)
        for number, chunk in enumerate(chunks):
            if all(same(piece, chunk[: len(piece)]) for piece in mine):
                return (
                    f"rank {rank} has chunk {number} in all {n} places: `[t] * n` is a list of one tensor, n times;"
                    " each place needs one of its own, [torch.empty_like(t) for _ in range(n)]"
                )
        return None

    return diagnosis


@on_each_result
def remainder_left(run: Run, rank: int, got: Any, right: Any) -> str | None:
    """n chunks of C // n elements: what the division leaves over is missing, or was not summed."""
    n = run.case.world
    even = len(right) // n * n
    if not is_tensor(got) or got.dim() != 1 or even in (0, len(right)) or not same(got[:even], right[:even]):
        return None
    lost = f"the last {counted(len(right) - even, 'element')} of {len(right)}"
    what = f"lacks {lost}" if len(got) == even else f"has {lost} wrong"
    return f"rank {rank} {what}: n chunks of C // n leave a remainder, x.tensor_split(n) does not"


def chunk_order(split: Callable[[torch.Tensor, int], Sequence[torch.Tensor]]) -> Diagnosis:
    """The right chunks in another order. split: how the exercise cuts a tensor (C,) for n ranks."""

    @on_each_result
    def diagnosis(run: Run, rank: int, got: Any, right: Any) -> str | None:
        import torch

        if not is_tensor(got) or got.shape != right.shape:
            return None
        chunks = split(right, run.case.world)
        for order in permutations(range(len(chunks))):
            if same(got, torch.cat([chunks[i] for i in order])):
                first = next(i for i, other in enumerate(order) if i != other)
                return (
                    f"wrong order of chunks: rank {rank} has every chunk complete, but chunk {order[first]} lies where"
                    f" chunk {first} belongs"
                )
        return None

    return diagnosis


def contributions(split: Callable[[torch.Tensor, int], Sequence[torch.Tensor]]) -> Diagnosis:
    """A sum that leaves a rank out, or counts one twice, in some chunk. split: as in `chunk_order`."""

    def diagnosis(run: Run, expected: Sequence[Any]) -> str | None:
        n = run.case.world
        if n > 5:  # 3 ** n combinations are looked through
            return None
        inputs = [split(run.case.arguments[rank][0], n) for rank in range(n)]
        for rank, (got, right) in enumerate(zip(run.results, expected, strict=True)):
            if not is_tensor(got) or got.shape != right.shape or got.dtype != right.dtype:
                continue
            for number, (piece, wanted) in enumerate(zip(split(got, n), split(right, n), strict=True)):
                if same(piece, wanted):
                    continue
                counts = _combination(piece, [chunks[number] for chunks in inputs])
                if counts is None:
                    return _strange_chunk(rank, number, piece, inputs)
                lacks = [r for r, times in enumerate(counts) if times == 0]
                twice = [r for r, times in enumerate(counts) if times == 2]
                said = [
                    f"lacks what {named(lacks)} put in" if lacks else "",
                    f"counts {named(twice)} twice" if twice else "",
                ]
                return f"rank {rank}'s chunk {number} of {n} {' and '.join(text for text in said if text)}"
        return None

    return diagnosis


def _strange_chunk(rank: int, number: int, piece: torch.Tensor, inputs: Sequence[Sequence[torch.Tensor]]) -> str | None:
    """A sum in which another chunk than the one of this number has been added."""
    n = len(inputs)
    if n > 3 or any(len(chunk) != len(piece) for chunks in inputs for chunk in chunks):  # 2 ** (n * n) sums
        return None
    every = [(source, other, chunk) for source, chunks in enumerate(inputs) for other, chunk in enumerate(chunks)]
    for taken in product((0, 1), repeat=len(every)):
        parts = [each for each, yes in zip(every, taken, strict=True) if yes]
        strange = next(((source, other) for source, other, _ in parts if other != number), None)
        if strange and same(piece, sum(chunk for _, _, chunk in parts)):
            source, other = strange
            return (
                f"rank {rank}'s chunk {number} of {n} has rank {source}'s chunk {other} in it: what comes is added to"
                " the chunk of the same number, the one that the left neighbour sent"
            )
    return None


def _combination(piece: torch.Tensor, inputs: Sequence[torch.Tensor]) -> tuple[int, ...] | None:
    """How often each input is in the sum `piece` (0, 1 or 2 times, fewest doubles first), or None."""
    choices = sorted(product((1, 0, 2), repeat=len(inputs)), key=lambda counts: counts.count(2))
    for counts in choices:
        if same(piece, sum(times * chunk for times, chunk in zip(counts, inputs, strict=True))):
            return counts
    return None


def _all_scaled(run: Run, expected: Sequence[Any], factor: float) -> bool:
    if all_same(run.results, expected):
        return False
    scaled = [right * factor if is_tensor(right) or isinstance(right, float) else None for right in expected]
    told = [(got, right) for got, right in zip(run.results, scaled, strict=True) if right is not None]
    return bool(told) and all(same(got, right) for got, right in told)
