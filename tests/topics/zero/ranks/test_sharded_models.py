"""What people do to a sharded model: it ends in the right value or in a sentence, on every rank."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from kit.run.live import LiveRunner
from kit.topics.zero.reference import ZeroStage1, ZeroStage2, ZeroStage3
from tests.topics.data_parallel.ranks.mishaps import (
    C,
    check_that_a_gradient_in_two_parts_is_refused,
    check_that_training_is_settled_before,
    check_that_what_cannot_be_wrapped_is_said,
    flat,
    loss_of,
    model,
    said_by,
    samples,
)

STAGES: dict[str, Any] = {"1": ZeroStage1, "2": ZeroStage2, "3": ZeroStage3}


@pytest.mark.parametrize("name", STAGES)
def test_what_is_trained_is_settled_before(three: LiveRunner, name: str) -> None:
    check_that_training_is_settled_before(three, STAGES[name])


@pytest.mark.parametrize("name", ["1", "2"])
def test_a_gradient_in_two_parts_is_refused(three: LiveRunner, name: str) -> None:
    check_that_a_gradient_in_two_parts_is_refused(three, STAGES[name])


@pytest.mark.parametrize("name", ["1", "3"])
def test_what_cannot_be_sharded_is_said(three: LiveRunner, name: str) -> None:
    check_that_what_cannot_be_wrapped_is_said(three, STAGES[name])


def sharded_twice(make: Any) -> str:
    return said_by(lambda: make(make(model()).module), ValueError)


@pytest.mark.parametrize("name", STAGES)
def test_what_is_sharded_already_is_not_sharded_again(three: LiveRunner, name: str) -> None:
    for told in three.record(sharded_twice, STAGES[name]).results:
        assert "sharded already" in told


def trained_alone(steps: int) -> torch.Tensor:
    alone, n = model(), dist.get_world_size()
    optimizer = torch.optim.AdamW(alone.parameters(), lr=0.05)
    for step in range(steps):
        optimizer.zero_grad()
        sum(alone(samples(r, step)).square().sum() for r in range(n)).div(n).backward()
        optimizer.step()
    return flat(alone.parameters())


def zeroed_by_the_module(make: Any) -> None:
    zero = make(model(), lr=0.05)
    for step in range(3):
        zero.module.zero_grad()
        loss_of(zero, step).backward()
        zero.step()
    with zero.full_parameters() as whole:
        torch.testing.assert_close(flat(whole.parameters()), trained_alone(3))


@pytest.mark.parametrize("name", STAGES)
def test_the_module_s_own_zero_grad_forgets_shares(three: LiveRunner, name: str) -> None:
    three.record(zeroed_by_the_module, STAGES[name])


def loaded(make: Any, options: dict[str, Any]) -> None:
    """Weights that were loaded into a sharded model are what it trains on."""
    zero = make(model().float(), lr=1e-4, **options)
    new = {name: torch.full_like(x, 0.5) for name, x in model().float().state_dict().items()}
    with zero.full_parameters() as whole:
        whole.load_state_dict(new)
    (zero(samples(dist.get_rank()).float()).square().sum()).backward()
    zero.step()
    with zero.full_parameters() as whole:
        now = flat(whole.parameters())
    assert not torch.equal(now, torch.full_like(now, 0.5)) or options.get("precision") == "mixed"
    assert bool((now.float() - 0.5).abs().max() < 1e-2), "a step of AdamW is at most about lr"


@pytest.mark.parametrize("options", [{}, {"precision": "mixed"}, {"offload": True}], ids=str)
@pytest.mark.parametrize("name", STAGES)
def test_what_is_loaded_within_whole_counts(three: LiveRunner, name: str, options: dict[str, Any]) -> None:
    three.record(loaded, STAGES[name], options)


def stale(make: Any) -> list[str]:
    """A step between a forward pass and its backward pass; a step before any; norms that are none."""
    zero = make(model())
    told = [said_by(zero.step, RuntimeError)]
    loss_of(zero).backward()
    later = loss_of(zero, 1)
    told += [said_by(lambda norm=norm: zero.clip(norm), ValueError) for norm in (-1.0, float("nan"))]
    zero.step()
    return [*told, said_by(later.backward, RuntimeError)]


@pytest.mark.parametrize("name", STAGES)
def test_steps_at_the_wrong_time_are_refused(three: LiveRunner, name: str) -> None:
    for rank, told in enumerate(three.record(stale, STAGES[name]).results):
        assert told[0] == f"rank {rank} has no gradient at all: call backward() before step()"
        assert "0 or more, not -1.0" in told[1] and "0 or more, not nan" in told[2]
        assert "modified by an inplace operation" in told[3], "torch's own words for weights that are not those"


class Direct(nn.Module):
    """Uses a layer's weights without calling it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(C, C).double(), nn.Linear(C, C).double()

    def forward(self, x: torch.Tensor) -> Any:
        return self.second.forward(self.first(x))


@dataclass
class Out:
    y: torch.Tensor


class Boxed(nn.Module):
    """Takes and gives a data class. (B, C) -> (B, C)."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(C, C).double()

    def forward(self, x: Any) -> Out:
        return Out(torch.tanh(self.linear(getattr(x, "y", x))))


def boxed_gradients() -> None:
    torch.manual_seed(0)
    one = nn.Sequential(Boxed(), Boxed(), Boxed())
    same = copy.deepcopy(one)
    zero, adam = ZeroStage3(one, lr=0.05), torch.optim.AdamW(same.parameters(), lr=0.05)
    loss_of(lambda x: zero(x).y).backward()
    n = dist.get_world_size()
    sum(same(samples(r)).y.square().sum() for r in range(n)).div(n).backward()
    zero.step()
    adam.step()
    with zero.full_parameters() as whole:
        torch.testing.assert_close(flat(whole.parameters()), flat(same.parameters()))


def test_layers_may_hand_on_data_classes(three: LiveRunner) -> None:
    three.record(boxed_gradients)


def test_weights_of_a_layer_that_was_not_called_are_named(three: LiveRunner) -> None:
    def direct() -> str:
        return said_by(lambda: loss_of(ZeroStage3(Direct())).backward(), RuntimeError)

    for told in three.record(direct).results:
        assert told.startswith("second.weight, second.bias was used without a call of its layer")
