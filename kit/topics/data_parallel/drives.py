"""On ranks: a model whose gradients are known numbers, and how the functions of labs 03a and 03b are used on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

Tensors = Mapping[str, torch.Tensor]
FROZEN, BUFFER, TIED, OF = "scale", "mask", "unembed", "embed"  # names that stand for what they are


class Known(nn.Module):
    """The loss is the sum of each parameter times the gradient it is to have. Backward takes the last named first.

    'scale' is frozen, 'mask' is a buffer, and where there is an 'embed', 'unembed' is the same parameter.
    """

    def __init__(self, state: Tensors) -> None:
        super().__init__()
        for name, value in state.items():
            if name == BUFFER:
                self.register_buffer(name, value.clone())
            else:
                self.register_parameter(name, nn.Parameter(value.clone(), requires_grad=name != FROZEN))
        if OF in state:
            self.register_parameter(TIED, getattr(self, OF))

    def forward(self, gradients: Tensors) -> torch.Tensor:
        terms = [(getattr(self, name) * gradient).sum() for name, gradient in gradients.items()]  # each ()
        loss: torch.Tensor = terms[0]
        for term in terms[1:]:
            loss = loss + term
        return loss  # ()


def flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """All of them, one after the other: (P,)."""
    return torch.cat([x.detach().flatten() for x in tensors])


def gradients_of(model: nn.Module) -> torch.Tensor:
    """Every trained parameter's gradient: (P,); zeros where there is none."""
    trained = [p for p in model.parameters() if p.requires_grad]
    return flat([torch.zeros_like(p) if p.grad is None else p.grad for p in trained])


def named(result: object, model: nn.Module) -> str:
    """What a function returned, in words; "" for None."""
    return "" if result is None else "the model" if result is model else f"a {type(result).__name__}"


def share_state(function: Callable[..., Any], state: Tensors, source: int, seen: dict[str, Any]) -> torch.Tensor:
    """function(model, source): parameters and buffers afterwards."""
    model = Known(state)
    seen["returned"] = named(function(model, source), model)
    return flat([*model.parameters(), *model.buffers()])


def average(function: Callable[..., Any], state: Tensors, gradients: Tensors, seen: dict[str, Any]) -> torch.Tensor:
    """backward, then function(model): the gradients afterwards."""
    model = Known(state)
    model(gradients).backward()
    seen["returned"] = named(function(model), model)
    seen["state"] = flat([*model.parameters(), *model.buffers()])
    return gradients_of(model)


def attach(
    function: Callable[..., Any], state: Tensors, passes: Sequence[Tensors], each: int, given: Any, seen: dict[str, Any]
) -> torch.Tensor:
    """function(model, given), then backward passes; gradients are read, and cleared, after every `each` of them."""
    model = Known(state)
    first = next(p for p in model.parameters() if p.requires_grad)
    arrivals: list[int] = []
    first.register_post_accumulate_grad_hook(lambda p: arrivals.append(time.monotonic_ns()))
    seen["returned"] = named(function(model, given), model)
    found = []
    for number, gradients in enumerate(passes, 1):
        model(gradients).backward()
        if number % each == 0:
            found.append(gradients_of(model))
            model.zero_grad()
    seen["state"] = flat([*model.parameters(), *model.buffers()])
    seen["arrivals"] = arrivals
    return torch.cat(found)
