"""A small model on every rank, and what people do to it that has to end in a sentence: for wrappers and for shards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from kit.run.live import LiveRunner
from kit.topics.data_parallel.reference.gradient_owner import own_gradients

C = 4


def samples(rank: int, step: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(2, C, generator=draw, dtype=torch.float64)  # (B, C)


def model() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(C, 5), nn.Tanh(), nn.Linear(5, 1)).double()


def loss_of(called: Callable[..., Any], step: int = 0) -> Any:
    return called(samples(dist.get_rank(), step)).square().sum()


def flat(tensors: Any) -> torch.Tensor:
    return torch.cat([x.detach().flatten() for x in tensors])


def mean_gradient() -> torch.Tensor:
    """What one process finds for the samples of all ranks."""
    alone, n = model(), dist.get_world_size()
    sum(alone(samples(r)).square().sum() for r in range(n)).div(n).backward()
    return flat(p.grad for p in alone.parameters())


def said_by(act: Callable[[], Any], *errors: type[Exception]) -> str:
    with pytest.raises(errors or (RuntimeError, ValueError)) as caught:
        act()
    return str(caught.value)


def thaws(make: Any) -> str:
    one = model()
    one[0].weight.requires_grad_(False)
    made = make(one)
    one[0].weight.requires_grad_(True)
    return said_by(lambda: (loss_of(made).backward(), made.step()))


def freezes(make: Any) -> str:
    one = model()
    made = make(one)
    one[0].weight.requires_grad_(False)
    return said_by(lambda: (loss_of(made).backward(), made.step()))


def check_that_training_is_settled_before(three: LiveRunner, make: Any) -> None:
    for told in three.record(thaws, make).results:
        assert told.startswith("0.weight wants a gradient now and did not when the module was wrapped")
    for rank, told in enumerate(three.record(freezes, make).results):
        assert told.startswith(f"rank {rank} has no gradient for 0.weight, frozen since")


class Recomputed(nn.Module):
    """One layer used twice, each time recomputed by a backward pass within the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(C, C).double(), nn.Linear(C, 1).double()

    def forward(self, x: torch.Tensor) -> Any:
        x = x.clone().requires_grad_()
        for _ in range(2):
            x = checkpoint(self.layer, torch.tanh(x), use_reentrant=True)
        return self.last(x)


def recomputed(make: Any) -> str:
    made = make(Recomputed())  # who lets go of a wrapper has its hooks do nothing
    return said_by(lambda: loss_of(made).backward())


def check_that_a_gradient_in_two_parts_is_refused(three: LiveRunner, make: Any) -> None:
    for told in three.record(recomputed, make).results:
        assert "got a gradient twice in one backward pass" in told and "use_reentrant=False" in told


def refused(make: Any) -> list[str]:
    """Sentences about what cannot be wrapped."""
    lazy, sparse = nn.LazyLinear(2), nn.ModuleDict({"words": nn.Embedding(3, 2, sparse=True)})
    sharded = model()
    own_gradients(None, sharded.parameters(), sharded=True)  # as a sharded optimizer does
    wrong: list[Any] = [nn.Linear, model, lazy, sparse, sharded]
    return [said_by(lambda one=one: make(one), ValueError) for one in wrong]


def check_that_what_cannot_be_wrapped_is_said(three: LiveRunner, make: Any) -> None:
    words = ["not the class Linear", "not a function", "a lazy module has no sizes", "words makes sparse gradients"]
    for told in three.record(refused, make).results:
        assert all(word in sentence for word, sentence in zip([*words, "sharded already"], told, strict=True))
