"""A layer that takes a given time, since it sleeps: so more ranks than processors do not disturb each other."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from kit.topics.pipeline.reference.parted import Work, at_once

Tensor = torch.Tensor


class Paced(nn.Module):
    """Gives on what it gets, after `seconds` of forward pass; back, after those of I, and W has its own."""

    def __init__(self, forward: float, input: float, weight: float) -> None:
        super().__init__()
        self.seconds = forward, input, weight
        self.take: Callable[[Work], None] = at_once

    def part(self, take: Callable[[Work], None]) -> None:
        """Gives the work of W to `take`."""
        self.take = take

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = _Pace.apply(x, self)  # type: ignore[no-untyped-call]
        return y


class _Pace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: Paced) -> Tensor:
        ctx.layer = layer
        time.sleep(layer.seconds[0])
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        layer = ctx.layer
        time.sleep(layer.seconds[1])
        layer.take(partial(time.sleep, layer.seconds[2]))
        return dy, None
