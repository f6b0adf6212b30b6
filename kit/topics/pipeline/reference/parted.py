"""The backward pass of linear layers in two parts.

y = x A^T + b needs two products on its way back: dx = dy A, for which the stage before it waits, and dA = dy^T x, for
which nobody does before the optimizer. Put off, the second fills time in which a rank would be idle (Qi, Wan, Huang and
Lin, Zero bubble pipeline parallelism, 2023). Everything else of a stage, norms and embeddings, is cheap and stays in
the first part.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator

Tensor = torch.Tensor
Work = Callable[[], None]


@runtime_checkable
class Parting(Protocol):
    """A layer whose weights' gradients can be put off."""

    def part(self, take: Callable[[Work], None]) -> None: ...


def at_once(work: Work) -> None:
    work()


class WeightGradients:
    """The weight gradients of a module's linear layers, put off until they are asked for.

    From now on its layers' backward passes give dx alone: within `put_off` their other half is kept under a name, and
    `compute` does it. A layer of another kind that can do so has `part`, which is told where to leave its other half.
    """

    def __init__(self, module: nn.Module) -> None:
        self._kept: dict[Hashable, list[Work]] = {}
        self._now: list[Work] | None = None
        for layer in module.modules():
            if type(layer) is nn.Linear:
                layer.forward = partial(_forward, layer, self._take)  # type: ignore[method-assign]
            elif isinstance(layer, Parting):
                layer.part(self._take)

    @contextmanager
    def put_off(self, name: Hashable) -> Iterator[None]:
        """Around a backward pass."""
        self._now = self._kept[name] = []
        try:
            yield
        finally:
            self._now = None

    def compute(self, name: Hashable) -> None:
        """Adds to the gradients of the weights what was put off under this name."""
        for work in self._kept.pop(name):
            work()

    def _take(self, work: Work) -> None:
        if self._now is None:  # a backward pass that nobody parted
            at_once(work)
        else:
            self._now.append(work)


def _forward(layer: nn.Linear, take: Callable[[Work], None], x: Tensor) -> Tensor:
    return parted_linear(take, x, layer.weight, layer.bias)


def parted_linear(take: Callable[[Work], None], x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """F.linear, whose backward pass gives dx and leaves the rest to `take`. (..., C) -> (..., D)"""
    y: Tensor = _Linear.apply(x, weight, bias, take)  # type: ignore[no-untyped-call]
    return y


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, take: Callable[[Work], None]) -> Tensor:
        y = F.linear(x, weight, bias)
        ctx.save_for_backward(x.to(y.dtype))  # under autocast what it was multiplied as
        ctx.weight, ctx.bias, ctx.take = weight, bias, take
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, None, None, None]:
        (x,) = ctx.saved_tensors
        ctx.take(partial(_add_gradients, ctx.weight, ctx.bias, x, dy))
        return dy @ ctx.weight.to(dy.dtype) if ctx.needs_input_grad[0] else None, None, None, None


@torch.no_grad()
def _add_gradients(weight: Tensor, bias: Tensor | None, x: Tensor, dy: Tensor) -> None:
    x, dy = x.flatten(0, -2), dy.flatten(0, -2)  # (BT, C), (BT, D)
    _add(weight, dy.T @ x)  # (D, C)
    if bias is not None:
        _add(bias, dy.sum(0))  # (D,)


def _add(parameter: Tensor, gradient: Tensor) -> None:
    if not parameter.requires_grad:
        return
    if parameter.grad is None:
        parameter.grad = gradient.to(parameter.dtype)
    else:
        parameter.grad += gradient
