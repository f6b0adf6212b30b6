"""Inputs that exercises share: readable numbers, exact in float32, so that sums have no rounding to argue about."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def tensor(size: int, random: Random) -> torch.Tensor:
    """A float32 tensor (size,) of multiples of 1/8 between -500 and 500, none of them 0."""
    import torch

    return torch.tensor(
        [random.choice((-1, 1)) * random.randint(1, 4000) / 8 for _ in range(size)], dtype=torch.float32
    )


def tensors(world: int, size: int, random: Random) -> tuple[torch.Tensor, ...]:
    """One such tensor for each rank."""
    return tuple(tensor(size, random) for _ in range(world))


def sizes(world: int, random: Random) -> tuple[int, int, int]:
    """Three sizes for n ranks: a multiple of n, one with a remainder, and one smaller than n."""
    return (
        world * random.randint(2, 6),
        world * random.randint(7, 30) + random.randint(1, world - 1),
        random.randint(1, world - 1),
    )
