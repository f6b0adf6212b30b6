"""What lab 04's functions are tried on, and the right answers, computed in one process."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Any

from kit.grade import inputs
from kit.grade.exercise import Case

if TYPE_CHECKING:
    import torch

FLOAT = 4  # bytes of a float32
STEPS = 3  # so that what one step leaves behind meets the next
MICRO_BATCHES = 3
LR = 0.01
SCALES = (1.0, 0.25, 4.0)  # of the gradients of each step: with equal ones moments would hardly matter


def padded_shard(case: Case, count: int | None = None) -> int:
    """Elements of a shard: count (None: the case's size) padded to a multiple of n, over n."""
    return -(-(case.size if count is None else count) // case.world)


def padded(flat: torch.Tensor, n: int) -> torch.Tensor:
    """flat (P,) with zeros behind it, cut into shards: (n, ceil(P/n))."""
    import torch

    return torch.cat([flat, flat.new_zeros(-len(flat) % n)]).view(n, -1)


def step_cases(world: int, random: Random) -> Iterator[Case]:
    """Equal weights, another gradient on each rank; sizes with and without a remainder, and fewer than ranks."""
    for size in inputs.sizes(world, random):
        weights = inputs.tensor(size, random) / 500  # (P,)
        own = [[inputs.tensor(size, random) * scale for scale in SCALES] for _ in range(world)]
        arguments: Any = tuple((weights.clone(), gradients, LR, {}) for gradients in own)
        facts = {"weights": weights, "means": [sum(each) / world for each in zip(*own, strict=True)], "own": own}
        yield Case(world, arguments, size, facts, _drive("steps"))


def stepped(case: Case) -> list[Any]:
    """The weights after every step of torch's AdamW against the mean gradient, end to end: (STEPS P,)."""
    import torch

    weights = torch.nn.Parameter(case.facts["weights"].clone())  # (P,)
    optimizer = torch.optim.AdamW([weights], lr=LR)
    found = []
    for mean in case.facts["means"]:
        weights.grad = mean.clone()
        optimizer.step()
        found.append(weights.detach().clone())
    return [torch.cat(found)] * case.world


def gradient_cases(world: int, random: Random) -> Iterator[Case]:
    """The gradients of several micro-batches, different on each rank."""
    for size in inputs.sizes(world, random):
        own = [[inputs.tensor(size, random) for _ in range(MICRO_BATCHES)] for _ in range(world)]
        yield Case(world, tuple((each, {}) for each in own), size, {"own": own}, _drive("micro_batches"))


def summed(case: Case) -> list[Any]:
    """Each rank's shard of the mean over ranks, summed over the micro-batches: (ceil(P/n),)."""
    import torch

    whole = torch.stack([torch.stack(each).sum(0) for each in case.facts["own"]]).sum(0) / case.world  # (P,)
    return list(padded(whole, case.world))


def layer_cases(world: int, random: Random) -> Iterator[Case]:
    """Three layers of different sizes, of which each rank has its padded shard, and samples of its own."""
    import torch

    for widths in _widths(world, random):
        shapes = [torch.Size(pair) for pair in zip(widths, widths[1:], strict=False)]
        whole = [(inputs.tensor(shape.numel(), random) / 500).view(shape) for shape in shapes]
        shards = [padded(w.flatten(), world) for w in whole]  # of each layer (n, ceil(P/n))
        samples = [(inputs.tensor(2 * widths[0], random) / 500).view(2, -1) for _ in range(world)]
        arguments: Any = tuple(
            ([shard[rank].clone() for shard in shards], shapes, samples[rank], {}) for rank in range(world)
        )
        facts = {"whole": whole, "samples": samples, "largest": max(shape.numel() for shape in shapes)}
        yield Case(world, arguments, widths[0], facts, _drive("layers"))


def passed(case: Case) -> list[Any]:
    """Output and gradients of every rank's samples, as `drives.layers` puts them together."""
    import torch

    found = []
    for x in case.facts["samples"]:
        weights = [torch.nn.Parameter(w.clone()) for w in case.facts["whole"]]
        inputs, y = [], x.clone()
        for w in weights:
            inputs.append(y.detach().requires_grad_())
            y = torch.relu(inputs[-1] @ w)  # (B, C')
        answers, dy = [y.detach().flatten()], torch.ones_like(y)
        for at, w in reversed(list(zip(inputs, weights, strict=True))):
            dy, dw = torch.autograd.grad(torch.relu(at @ w), (at, w), dy)  # (B, C), (C, C')
            answers += [dy.flatten(), dw.flatten()]
        found.append(torch.cat(answers))
    return found


def _widths(world: int, random: Random) -> Iterator[list[int]]:
    """C of each layer's input and of the last one's output: multiples of n, then others, then a layer of 1 x 1."""
    yield [world * random.randint(1, 2) for _ in range(4)]
    yield [world + 1, random.randint(2, 5), world * 2 + 1, random.randint(2, 5)]
    yield [1, 1, random.randint(2, 4), 1]


def _drive(name: str) -> Any:
    from kit.topics.zero import drives

    return getattr(drives, name)
