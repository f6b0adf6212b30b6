"""What people do to a wrapped or a sharded model: it ends in the right value or in a sentence, on every rank."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from kit.cluster.cluster import Cluster
from kit.parallel.ddp import AveragedAfterBackward, BucketedDDP, HookedDDP
from kit.parallel.zero import ZeroStage1, ZeroStage2
from kit.parallel.zero3 import ZeroStage3

DDPS: dict[str, Any] = {"after": AveragedAfterBackward, "hooks": HookedDDP, "buckets": BucketedDDP}
STAGES: dict[str, Any] = {"1": ZeroStage1, "2": ZeroStage2, "3": ZeroStage3}
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


# averaging


def copies(wrapper: Any) -> None:
    wrapped = wrapper(model())
    loss_of(wrapped).backward()
    for again in (copy.deepcopy(wrapped), pickle.loads(pickle.dumps(wrapped))):
        again.zero_grad()
        loss_of(again).backward()
        torch.testing.assert_close(flat(p.grad for p in again.parameters()), mean_gradient())


@pytest.mark.parametrize("name", DDPS)
def test_a_copy_averages_too(three: Cluster, name: str) -> None:
    three.record(copies, DDPS[name])


def wrapped_in_two(first: Any, second: Any) -> None:
    """Two wrappers side by side, and one around the other: the mean is taken once."""
    one = model()
    kept = [first(one), second(one)]
    loss_of(kept[1]).backward()
    torch.testing.assert_close(flat(p.grad for p in one.parameters()), mean_gradient())
    around = second(first(model()))
    loss_of(around).backward()
    torch.testing.assert_close(flat(p.grad for p in around.parameters()), mean_gradient())


@pytest.mark.parametrize("second", DDPS)
@pytest.mark.parametrize("first", ["hooks", "buckets"])
def test_of_two_wrappers_the_newest_averages(three: Cluster, first: str, second: str) -> None:
    three.record(wrapped_in_two, DDPS[first], DDPS[second])


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


@pytest.mark.parametrize("make", [*DDPS.values(), *STAGES.values()], ids=[*DDPS, *STAGES])
def test_what_is_trained_is_settled_before(three: Cluster, make: Any) -> None:
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


@pytest.mark.parametrize("make", [HookedDDP, BucketedDDP, ZeroStage1, ZeroStage2])
def test_a_gradient_in_two_parts_is_refused(three: Cluster, make: Any) -> None:
    for told in three.record(recomputed, make).results:
        assert "got a gradient twice in one backward pass" in told and "use_reentrant=False" in told


def refused(make: Any) -> list[str]:
    """Sentences about what cannot be wrapped."""
    lazy, sparse = nn.LazyLinear(2), nn.ModuleDict({"words": nn.Embedding(3, 2, sparse=True)})
    sharded = ZeroStage1(model())
    wrong: list[Any] = [nn.Linear, model, lazy, sparse, sharded.module]
    return [said_by(lambda one=one: make(one), ValueError) for one in wrong]


@pytest.mark.parametrize("make", [HookedDDP, ZeroStage1, ZeroStage3])
def test_what_cannot_be_wrapped_is_said(three: Cluster, make: Any) -> None:
    words = ["not the class Linear", "not a function", "a lazy module has no sizes", "words makes sparse gradients"]
    for told in three.record(refused, make).results:
        assert all(word in sentence for word, sentence in zip([*words, "sharded already"], told, strict=True))


# sharding


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
    with zero.whole() as whole:
        torch.testing.assert_close(flat(whole.parameters()), trained_alone(3))


@pytest.mark.parametrize("name", STAGES)
def test_the_module_s_own_zero_grad_forgets_shares(three: Cluster, name: str) -> None:
    three.record(zeroed_by_the_module, STAGES[name])


def loaded(make: Any, options: dict[str, Any]) -> None:
    """Weights that were loaded into a sharded model are what it trains on."""
    zero = make(model().float(), lr=1e-4, **options)
    new = {name: torch.full_like(x, 0.5) for name, x in model().float().state_dict().items()}
    with zero.whole() as whole:
        whole.load_state_dict(new)
    (zero(samples(dist.get_rank()).float()).square().sum()).backward()
    zero.step()
    with zero.whole() as whole:
        now = flat(whole.parameters())
    assert not torch.equal(now, torch.full_like(now, 0.5)) or options.get("precision") == "mixed"
    assert bool((now.float() - 0.5).abs().max() < 1e-2), "a step of AdamW is at most about lr"


@pytest.mark.parametrize("options", [{}, {"precision": "mixed"}, {"offload": True}], ids=str)
@pytest.mark.parametrize("name", STAGES)
def test_what_is_loaded_within_whole_counts(three: Cluster, name: str, options: dict[str, Any]) -> None:
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
def test_steps_at_the_wrong_time_are_refused(three: Cluster, name: str) -> None:
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
    with zero.whole() as whole:
        torch.testing.assert_close(flat(whole.parameters()), flat(same.parameters()))


def test_layers_may_hand_on_data_classes(three: Cluster) -> None:
    three.record(boxed_gradients)


def test_weights_of_a_layer_that_was_not_called_are_named(three: Cluster) -> None:
    def direct() -> str:
        return said_by(lambda: loss_of(ZeroStage3(Direct())).backward(), RuntimeError)

    for told in three.record(direct).results:
        assert told.startswith("second.weight, second.bias was used without a call of its layer")
