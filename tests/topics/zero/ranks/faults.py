"""ZeRO going wrong on purpose, one fault each; written for three ranks."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

C = 4
WHOLE = torch.arange(2.0 * C).view(2, C) / 8  # a batch of two samples


class Layer(nn.Module):
    """A linear layer in whose backward pass something may happen on rank 1."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.linear, self.spare, self.fault = nn.Linear(C, C), nn.Linear(C, C), fault

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        if self.fault and dist.get_rank() == 1:
            y.register_hook(self.strike)
        return y if self.fault == "unused" else y + self.spare(x)

    def strike(self, gradient: torch.Tensor) -> torch.Tensor | None:
        if self.fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        return gradient * float("nan") if self.fault == "nan" else None


def one_step(make: Any, fault: str, **options: Any) -> torch.Tensor:
    """A step of three layers, of which the one in the middle has the fault."""
    torch.manual_seed(0)
    zero = make(nn.Sequential(Layer(), Layer(fault), Layer()), **options)
    zero(torch.randn(2, C)).square().mean().backward()
    zero.step()
    with zero.full_parameters() as model:
        return torch.cat([p.detach().flatten() for p in model.parameters()])


def without_samples(make: Any, how: str) -> torch.Tensor:
    """One step on a batch of two samples: rank 2 has none. Returns the weights."""
    r, n = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    zero = make(nn.Sequential(nn.Linear(C, C), nn.Linear(C, 1)), lr=0.1)
    mine = WHOLE.tensor_split(n)[r]  # (1, C), (1, C), (0, C)
    if how == "goes home" and len(mine) == 0:
        return torch.empty(0)
    losses = zero(mine).square()  # (B, 1)
    loss = losses.sum() * n / len(WHOLE) if how == "weighted" else losses.mean()
    loss.backward()
    zero.step()
    with zero.full_parameters() as model:
        return torch.cat([p.detach().flatten() for p in model.parameters()])


def alone() -> torch.Tensor:
    """The same step of one process."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(C, C), nn.Linear(C, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(WHOLE).square().mean().backward()
    optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def fails_and_goes_on(make: Any) -> torch.Tensor:
    """A step after a backward pass that raised on every rank, and one that came upon what that had left behind."""
    torch.manual_seed(0)
    zero = make(nn.Sequential(Layer(), Layer(), Layer()))
    x = torch.randn(2, C)
    handle = zero.module[1].register_forward_hook(lambda module, args, y: y.register_hook(raises) and None)
    loss = zero(x).square().mean()
    handle.remove()
    try:
        loss.backward()
    except ArithmeticError:
        zero(x).square().mean().backward()
    zero.zero_grad()
    zero(x).square().mean().backward()
    zero.step()
    with zero.full_parameters() as model:
        return torch.cat([p.detach().flatten() for p in model.parameters()])


def raises(gradient: torch.Tensor) -> None:
    raise ArithmeticError("in the middle of backward")
