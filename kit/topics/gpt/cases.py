"""What lab 10's functions are tried on, and the right answers, computed in one process."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Any

from kit.grade import inputs
from kit.grade.exercise import Case

if TYPE_CHECKING:
    import torch

FLOAT, HASH = 4, 8  # bytes of a float32, of an int64
ROWS = 4  # B, of a micro-batch


# ------------------------------------------------------------------------------------------------- accumulation


def gradient_cases(world: int, random: Random) -> Iterator[Case]:
    """Equal weights; micro-batches of its own on each rank: several, one, many."""
    for m in (random.randint(2, 3), 1, random.randint(4, 6)):
        size = random.randint(3, 7)
        weight = inputs.tensor(size, random) / 500  # (C,)
        own = [[_batch(size, random) for _ in range(m)] for _ in range(world)]
        arguments: Any = tuple((weight.clone(), batches) for batches in own)
        yield Case(world, arguments, m, {"weight": weight, "own": own}, _drive("gradients"))


def gradients_right(case: Case) -> list[Any]:
    """Of the mean over all micro-batches of all ranks: (C,)."""
    return [sum(map(mean_gradient, [case] * case.world, range(case.world))) / case.world] * case.world


def mean_gradient(case: Case, rank: int) -> Any:
    """Of the mean over one rank's micro-batches."""
    batches = case.facts["own"][rank]
    return sum(batch_gradient(case, batch) for batch in batches) / len(batches)


def batch_gradient(case: Case, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """2 xT (x w - y) / B."""
    x, y = batch  # (B, C), (B,)
    weight: torch.Tensor = case.facts["weight"]
    residual = x @ weight - y  # (B,)
    return 2 * x.T @ residual / len(y)


def _batch(size: int, random: Random) -> tuple[torch.Tensor, torch.Tensor]:
    return (inputs.tensor(ROWS * size, random) / 500).view(ROWS, size), inputs.tensor(ROWS, random) / 500


# ------------------------------------------------------------------------------------------------- validation


def validation_cases(world: int, random: Random) -> Iterator[Case]:
    """Another number of batches on each rank, and batches of different lengths; then equal ones."""
    import torch

    for least in (2, 1, 3):
        counts = [least + rank % 2 for rank in range(world)]
        losses = [(inputs.tensor(k, random) / 500).abs() for k in counts]  # (K,)
        tokens = [torch.tensor([random.randint(1, 60) for _ in range(k)]) for k in counts]  # (K,)
        arguments: Any = tuple(zip(losses, tokens, strict=True))
        yield Case(world, arguments, sum(counts), {})


def validation_right(case: Case) -> list[Any]:
    total = sum(float((losses.double() * tokens).sum()) for losses, tokens in case.arguments)
    return [_scalar(total / sum(int(tokens.sum()) for _, tokens in case.arguments))] * case.world


def _scalar(value: float) -> Any:
    import torch

    return torch.tensor(value)


# ------------------------------------------------------------------------------------------------- hashes

NAMES = ("tokens", "blocks.0.qkv", "blocks.0.out", "blocks.1.qkv", "norm")
ALIKE, LAST_BIT, ORDER, TWICE = "alike", "last bit", "order", "twice"


def parted_cases(world: int, random: Random) -> Iterator[Case]:
    """Replicas that agree; that differ by a last bit, by the order of two numbers, in two tensors."""
    for kind in (TWICE, ALIKE, LAST_BIT, ORDER):
        whole = {name: _with_a_pair(inputs.tensor(40, random)) for name in NAMES}
        own = [{name: x.clone() for name, x in whole.items()} for _ in range(world)]
        parted = sorted(random.sample(range(len(NAMES)), 2 if kind == TWICE else 1)) if kind != ALIKE else []
        for at in parted:
            _part(own[-1][NAMES[at]], kind)
        facts = {"kind": kind, "parted": [NAMES[at] for at in parted]}
        yield Case(world, tuple((each,) for each in own), len(NAMES), facts)


def parted_right(case: Case) -> list[Any]:
    return [next(iter(case.facts["parted"]), "")] * case.world


def _with_a_pair(x: torch.Tensor) -> torch.Tensor:
    """x, whose first two numbers differ."""
    x[0], x[1] = 1.0, 2.0
    return x


def _part(x: torch.Tensor, kind: str) -> None:
    import torch

    if kind == ORDER:
        x[:2] = x[:2].flip(0)
        return
    x[0] = torch.nextafter(x[0], x.new_tensor(torch.inf)) if kind == LAST_BIT else -x[0]


# ------------------------------------------------------------------------------------------------- fewer ranks


def shard_cases(world: int, random: Random) -> Iterator[Case]:
    """A vector in shards of more ranks than there are, of fewer, of as many; with and without a remainder."""
    for old, size in zip((world + 2, max(1, world - 1), 2 * world), inputs.sizes(world, random), strict=True):
        whole = inputs.tensor(size, random)  # (P,), without a zero
        arguments: Any = tuple((whole, old, rank, world, {}) for rank in range(world))
        yield Case(world, arguments, size, {"whole": whole, "old": old}, _drive("resumed"))


def shards_right(case: Case) -> list[Any]:
    return list(padded(case.facts["whole"], case.world))


def padded(flat: torch.Tensor, n: int) -> torch.Tensor:
    """flat (P,) with zeros behind it, cut into shards: (n, ceil(P/n))."""
    import torch

    return torch.cat([flat, flat.new_zeros(-len(flat) % n)]).view(n, -1)


def _drive(name: str) -> Any:
    from kit.topics.gpt import drives

    return getattr(drives, name)
