"""How activations lie outside the layers that are cut, and whose random numbers are drawn there.

Whole: every rank holds all of x, and computes norms and dropout on it like every other. ByPosition: each holds T/n
positions of it, and computes those on them alone. Inside attention and MLP both are the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from kit.topics.data_parallel.reference.built_in import Group
from kit.topics.tensor.reference.by_hand import check_divides, copy_in, gather_in, scatter_out, sum_out

Tensor = torch.Tensor
POSITION = 1  # the dimension of T in (B, T, C)


class Region(ABC):
    """What is outside: how a layer that is cut is entered and left. seed: the same on every rank."""

    def __init__(self, group: Group = None, seed: int = 0) -> None:
        self.group = group
        self.equal = Draws(seed)
        self.own = Draws(seed + 1 + dist.get_rank(group))

    @abstractmethod
    def part(self, x: Tensor) -> Tensor:
        """What this rank holds of a whole x (B, T, C)."""

    @abstractmethod
    def enter(self, x: Tensor) -> Tensor:
        """What this rank holds -> (B, T, C)."""

    @abstractmethod
    def leave(self, x: Tensor) -> Tensor:
        """One term (B, T, C) of a sum on each rank -> what this rank holds of the sum."""

    @abstractmethod
    def use(self, p: Tensor) -> Tensor:
        """A parameter that every rank holds, to be used outside."""

    @property
    @abstractmethod
    def draws(self) -> Draws:
        """The random numbers of dropout outside."""


class Whole(Region):
    """Every rank does the same outside: parameters get equal gradients there, and dropout must drop the same."""

    def part(self, x: Tensor) -> Tensor:
        return x

    def enter(self, x: Tensor) -> Tensor:
        return copy_in(x, self.group)

    def leave(self, x: Tensor) -> Tensor:
        return sum_out(x, self.group)

    def use(self, p: Tensor) -> Tensor:
        return p

    @property
    def draws(self) -> Draws:
        return self.equal


class ByPosition(Region):
    """Each rank has positions of its own outside: gradients of parameters are summed, and dropout must differ.

    Two things Megatron-LM does better, at greater length. It keeps T/n positions of what enters a layer and gathers
    them again in backward, where gather_in leaves all T to be kept. And it sums the gradients of all parameters after
    backward, in one all-reduce, where copy_in sums each when backward comes upon it.
    """

    def part(self, x: Tensor) -> Tensor:
        n, r = dist.get_world_size(self.group), dist.get_rank(self.group)
        check_divides(x.shape[POSITION], n, f"{x.shape[POSITION]} positions")
        return x.chunk(n, POSITION)[r]

    def enter(self, x: Tensor) -> Tensor:
        return gather_in(x, POSITION, self.group)

    def leave(self, x: Tensor) -> Tensor:
        return scatter_out(x, POSITION, self.group)

    def use(self, p: Tensor) -> Tensor:
        return copy_in(p, self.group)

    @property
    def draws(self) -> Draws:
        return self.own


class Draws:
    """A row of random numbers beside torch's own: whatever is drawn inside `with draws.on(device):` comes from it.

    As in Megatron-LM's tracker of random states. torch's own row stands after it where it stood before.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._state: Tensor | None = None

    @contextmanager
    def on(self, device: torch.device) -> Iterator[None]:
        torchs: Any = torch if device.type == "cpu" else torch.get_device_module(device)
        before = torchs.get_rng_state()
        if self._state is None:
            self._state = torch.Generator(device).manual_seed(self.seed).get_state()
        torchs.set_rng_state(self._state)
        try:
            yield
        finally:
            self._state = torchs.get_rng_state()
            torchs.set_rng_state(before)
