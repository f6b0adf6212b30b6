"""What goes wrong in the middle of a schedule: run on the ranks by a test."""

from __future__ import annotations

import os
import signal

import torch
import torch.distributed as dist
from torch import nn

from kit.plan.families import schedule
from kit.topics.pipeline.reference import Pipeline


class Mortal(nn.Linear):
    """A stage that is killed when it is computed for the third time, where `dies`."""

    def __init__(self, dies: bool) -> None:
        super().__init__(4, 4)
        self.left = 2 if dies else 1000

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1
        return super().forward(x)


def one_step(what: str) -> list[float]:
    """The losses of four micro-batches in 1F1B. what: 'dies', on rank 1; 'rest', a last one that is smaller; or ''."""
    torch.manual_seed(0)
    p, r = dist.get_world_size(), dist.get_rank()
    plan = schedule("1F1B", p, 4)
    pipeline = Pipeline(plan.rows, {r: Mortal(what == "dies" and r == 1)}, p, torch.empty(3, 4), nn.functional.mse_loss)
    sizes = [3, 3, 3, 2 if what == "rest" else 3]
    return [loss.item() for loss in pipeline.step([torch.ones(n, 4) for n in sizes], [torch.ones(n, 4) for n in sizes])]
