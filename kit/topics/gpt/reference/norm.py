"""The norm of all gradients together, whoever holds them.

Squares add up, so a rank adds those of the gradients it holds, and the sum over the ranks is the square of the norm. A
gradient that several ranks hold alike counts on one of them. Every rank scales by the same number, or copies of a
weight would part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch.nn.utils import get_total_norm

TINY = 1e-6  # torch's clip_grad_norm_ adds it to the norm it divides by


def total_norm(counted: Iterable[torch.Tensor], groups: Sequence[dist.ProcessGroup], device: torch.device) -> float:
    """The norm of what all ranks of these groups count together; each has a direction of the mesh."""
    here = [x.float() for x in counted]
    squares = get_total_norm(here).square() if here else torch.zeros((), device=device)  # ()
    for group in groups:
        dist.all_reduce(squares, group=group)
    return float(squares.sqrt())


def scale(gradients: Iterable[torch.Tensor], norm: float, largest: float) -> None:
    """Makes gradients that have this norm together smaller, if it is above the largest allowed."""
    factor = largest / (norm + TINY)
    if factor < 1:
        for gradient in gradients:
            gradient.mul_(factor)
