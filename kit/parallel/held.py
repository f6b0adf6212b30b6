"""Bytes a rank holds, by kind, counted from the memory of the tensors that exist."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes of one rank at one moment. The first three are what ZeRO's formulas speak of; the others come on top."""

    parameters: int  # whole ones, or this rank's shares; frozen ones too
    gradients: int
    optimizer: int  # moments and master, offloaded or not
    gathered: int = 0  # layers that are whole for a moment
    buckets: int = 0  # gradients that are being summed

    @property
    def state(self) -> int:
        """Parameters, gradients and optimizer together."""
        return self.parameters + self.gradients + self.optimizer

    @property
    def total(self) -> int:
        """All of it."""
        return self.state + self.gathered + self.buckets


def nbytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of memory behind tensors: each piece of memory once, however many look at it."""
    memories = [x.untyped_storage() for x in tensors]
    return sum({memory.data_ptr(): memory.nbytes() for memory in memories}.values())
