"""What lab 06b's functions are tried on, and the right answers, computed in one process."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Any

from kit.grade import inputs
from kit.grade.exercise import Case

if TYPE_CHECKING:
    import torch


def parts_cases(world: int, random: Random) -> Iterator[Case]:
    """A stage of its own on each rank."""
    from kit.topics.pipeline.drives_b import by_parts

    for m in (random.randint(3, 4), 1, random.randint(5, 6)):
        arguments: Any = tuple((random.randrange(1 << 30), m, {}) for _ in range(world))
        yield Case(world, arguments, m, {}, by_parts)


def parts_right(case: Case) -> list[Any]:
    import torch

    from kit.topics.pipeline.drives_b import taken

    right = []
    for seed, m, _ in case.arguments:
        ys, dxs, dws = taken(seed, m)
        right.append(torch.cat([one.flatten() for one in (*ys, *dxs, sum(dws, torch.zeros_like(dws[0])))]))
    return right


def norm_cases(world: int, random: Random) -> Iterator[Case]:
    """Gradients of another number and other shapes on each stage."""
    for size in (world + 2, 1, 2 * world + 3):
        yield Case(world, tuple((_gradients(size + rank % 2, random),) for rank in range(world)), size)


def norm_right(case: Case) -> list[Any]:
    import torch

    squares = [one.double().square().sum() for (own,) in case.arguments for one in own]
    return [torch.stack(squares).sum().sqrt().float()] * case.world


LR = 0.5


def step_cases(world: int, random: Random) -> Iterator[Case]:
    """The norm is below the limit; the last stage brings it above; the first one does already."""
    from kit.topics.pipeline.drives_b import by_pairs

    for factor, where in ((2.0, 0), (0.5, world - 1), (0.5, 0)):
        size = random.randint(2, 9)
        own = [(inputs.tensor(size, random) / 100, inputs.tensor(size, random) / 100) for _ in range(world)]
        own[where] = (own[where][0], own[where][1] * 30)
        limit = factor * math.sqrt(sum(_square(gradient) for _, gradient in own))
        yield Case(world, tuple((*both, LR, limit) for both in own), size, {}, by_pairs)


def steps_right(case: Case) -> list[Any]:
    import torch

    pairs = zip(early_steps(case), final_steps(case), strict=True)
    return [torch.cat(pair) for pair in pairs]


def early_steps(case: Case) -> list[torch.Tensor]:
    """A stage steps where the gradients up to its own are within the limit."""
    within = [sum(squares(case)[: rank + 1]) <= limit_of(case) ** 2 for rank in range(case.world)]
    return [stepped(case, rank, 1.0 if go else 0.0) for rank, go in enumerate(within)]


def final_steps(case: Case) -> list[torch.Tensor]:
    scale = min(1.0, limit_of(case) / math.sqrt(sum(squares(case))))
    return [stepped(case, rank, scale) for rank in range(case.world)]


def stepped(case: Case, rank: int, scale: float) -> torch.Tensor:
    """The weights of a stage after a step with so much of its gradient."""
    weight, gradient, lr, _ = case.arguments[rank]
    after: torch.Tensor = weight - lr * scale * gradient
    return after


def squares(case: Case) -> list[float]:
    """Of each stage's gradient the sum of its squares."""
    return [_square(gradient) for _, gradient, _, _ in case.arguments]


def limit_of(case: Case) -> float:
    return float(case.arguments[0][3])


def _square(gradient: torch.Tensor) -> float:
    return float(gradient.double().square().sum())


def _gradients(count: int, random: Random) -> list[torch.Tensor]:
    return [inputs.tensor(random.randint(2, 6), random) / 100 for _ in range(count)]
