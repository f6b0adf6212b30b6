"""Awkward models and uses of ZeRO, run on every rank, each beside what a single process does with the whole batch."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from kit.topics.zero.reference import ZeroStage1, ZeroStage2, ZeroStage3, by_hand
from kit.topics.zero.reference.adamw import DEFAULTS
from kit.topics.zero.reference.by_hand import flatten
from tests.topics.zero.ranks.training import C, Words, batch, flat, model_of, one_thread, state, train

Make = Callable[..., Any]
STEPS = 6


def decaying(model: nn.Module) -> list[dict[str, Any]]:
    """Matrices decay fast, the rest not at all."""
    trained = [p for p in model.parameters() if p.requires_grad]
    matrices = [p for p in trained if p.dim() >= 2]
    return [
        {"params": matrices, "weight_decay": 0.5},
        {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0},
    ]


def clipped(make: Make) -> tuple[torch.Tensor, list[float]]:
    """Groups, a learning rate that changes, and clipping to a norm that is exceeded: the state and the norms."""
    model = model_of(1000)
    zero = make(model, groups=decaying(model), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(zero, lambda step: 1 / (step + 1))
    norms = []
    for step in range(STEPS):
        zero.zero_grad()
        model(*batch(step, 0, [dist.get_rank()])).backward()
        norms.append(zero.clip(0.3))
        zero.step()
        schedule.step()
    with zero.full_parameters():
        return state(model), norms


@one_thread()
def clipped_alone(n: int) -> tuple[torch.Tensor, list[float]]:
    model = model_of(1000)
    optimizer = torch.optim.AdamW(decaying(model), lr=0.1)
    norms = []
    for step in range(STEPS):
        optimizer.zero_grad()
        model(*batch(step, 0, range(n))).backward()
        for group in optimizer.param_groups:
            group["lr"] = 0.1 / (step + 1)
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.3)))
        optimizer.step()
    return state(model), norms


class Sometimes(nn.Module):
    """One matrix is used where it is said, another never. (B, T) and a switch -> ()."""

    def __init__(self) -> None:
        super().__init__()
        self.words = Words()
        self.extra = nn.Linear(C, C)
        self.never = nn.Linear(C, 2)
        self.double()

    def forward(self, words: torch.Tensor, following: torch.Tensor, extra: bool) -> torch.Tensor:
        loss = self.words(words, following)
        return loss + self.extra(self.words.embed(words)).square().mean() if extra else loss


def uses_extra(step: int, rank: int) -> bool:
    """On no rank, on some, or on all, in turn."""
    return step % 3 == 2 or (step % 3 == 1 and rank == 0)


def sometimes(make: Make) -> torch.Tensor:
    r = dist.get_rank()
    torch.manual_seed(5)
    model = Sometimes()
    zero = make(model, lr=0.05, weight_decay=0.5, unused="zeros")
    for step in range(STEPS):
        zero.zero_grad()
        model(*batch(step, 0, [r]), uses_extra(step, r)).backward()
        zero.step()
    with zero.full_parameters():
        return state(model)


@one_thread()
def sometimes_alone(n: int) -> torch.Tensor:
    torch.manual_seed(5)
    model = Sometimes()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.5)
    for step in range(STEPS):
        optimizer.zero_grad()
        for r in range(n):
            (model(*batch(step, 0, [r]), uses_extra(step, r)) / n).backward()
        optimizer.step()
    return state(model)


class Odd(nn.Module):
    """Layers that are called twice, that write into their input, that return dicts, are frozen, or are recomputed."""

    def __init__(self, recompute: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(C, C)
        self.twice = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(C, C), nn.Tanh())
        self.frozen = nn.Sequential(nn.Linear(C, C), nn.Sigmoid()).requires_grad_(False)
        self.last = Pair()
        self.recompute = recompute
        self.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in (self.twice, self.frozen, self.twice):
            x = (
                checkpoint(lambda x, layer=layer: layer(x + 1.0), x, use_reentrant=False)
                if self.recompute
                else layer(x + 1.0)
            )
        out = self.last(left=x, right=x * 2)
        return (out["sum"] * out["pair"][0]).square().mean()


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(C, C), nn.Linear(C, C)

    def forward(self, *, left: torch.Tensor, right: torch.Tensor) -> dict[str, Any]:
        a, b = self.left(left), self.right(right)
        return {"sum": a + b, "pair": (a, b.detach())}


def samples(step: int, ranks: Iterable[int]) -> torch.Tensor:
    return torch.cat(
        [torch.randn(2, C, generator=torch.Generator().manual_seed(50 * step + r), dtype=torch.float64) for r in ranks]
    )


def odd(make: Make, recompute: bool, **options: Any) -> torch.Tensor:
    torch.manual_seed(6)
    model = Odd(recompute)
    if make is ZeroStage3:
        options["layers"] = [model.first, model.twice, model.frozen, model.last]
    zero = make(model, lr=0.05, **options)
    for step in range(STEPS):
        zero.zero_grad()
        model(samples(step, [dist.get_rank()])).backward()
        zero.step()
    with zero.full_parameters():
        return state(model)


@one_thread()
def odd_alone(n: int) -> torch.Tensor:
    torch.manual_seed(6)
    model = Odd()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(samples(step, range(n))).backward()
        optimizer.step()
    return state(model)


def evaluated() -> None:
    """Forward passes with and without gradients, between steps, see the weights of the moment and leave nothing."""
    zero, model = ZeroStage3(model_of(1000), lr=0.1), model_of(1000)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    r, n = dist.get_rank(), dist.get_world_size()
    for step in range(3):
        with torch.no_grad():
            assert torch.allclose(zero(*batch(9, 0, [r])), model(*batch(9, 0, [r])), rtol=1e-9)
        assert all(x.untyped_storage().nbytes() == 0 for x in zero.gathered())
        frozen = zero.module.get_parameter("blocks.1.gate")
        assert frozen.shape == (C,) and bool(frozen.isnan().all()), "a parameter that is not gathered reads as NaN"
        assert torch.allclose(zero(*batch(8, 0, [r])), model(*batch(8, 0, [r])), rtol=1e-9)  # no backward follows
        for each, trainer, ranks in ((zero.module, zero, [r]), (model, optimizer, range(n))):
            trainer.zero_grad()
            first, second = each(*batch(step, 0, ranks)), each(*batch(step, 1, ranks))  # two forwards, then backward
            (first + second).backward()
            trainer.step()
    with zero.full_parameters():
        assert torch.allclose(state(zero.module), state(model), atol=1e-9)


def in_groups() -> None:
    """Ranks 0 and 2 train together, rank 1 alone; an outsider is refused."""
    r = dist.get_rank()
    both, alone = dist.new_group([0, 2]), dist.new_group([1])
    members, group = ([1], alone) if r == 1 else ([0, 2], both)
    for make in (ZeroStage1, ZeroStage2, ZeroStage3):
        zero, model = make(model_of(1000 + r), group, lr=0.05), model_of(1000 + members[0])
        for module, optimizer, ranks in (
            (zero.module, zero, [r]),
            (model, torch.optim.AdamW(model.parameters(), lr=0.05), members),
        ):
            train(module, optimizer, ranks, steps=3)
        with zero.full_parameters():
            assert torch.allclose(state(zero.module), state(model), atol=1e-9)
        with pytest.raises(ValueError, match="not in the group"):
            make(model_of(0), both if r == 1 else alone)


def three_by_hand() -> tuple[torch.Tensor, torch.Tensor]:
    """Stage 3 by hand on three layers of one matrix each: (this rank's result put together, a single process's)."""
    r, n = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(8)
    weights = [nn.Parameter(torch.randn(C, C, dtype=torch.float64) / 3) for _ in range(3)]
    shards, shapes = [flatten([w], n)[r].clone() for w in weights], [w.shape for w in weights]
    states: list[dict[str, Any]] = [{} for _ in weights]
    optimizer = torch.optim.AdamW(weights, lr=0.05)
    for step in range(STEPS):
        mine = by_hand.stage_3_step(shards, shapes, layer, samples(step, [r]), loss_of, states, lr=0.05)
        optimizer.zero_grad()
        x = samples(step, range(n))
        for w in weights:
            x = layer(x, w)
        loss_of(x).backward()
        optimizer.step()
        assert mine.isfinite()
    whole = [by_hand.full_parameter(shard, shape) for shard, shape in zip(shards, shapes, strict=True)]
    return flat(whole), flat(weights)


def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.gelu(x @ w)


def loss_of(y: torch.Tensor) -> torch.Tensor:
    return (y - 1).square().mean()


def nothing_remains(make: Make) -> None:
    """A sharded model that is let go is gone, hooks or not."""
    zero = make(model_of(0), lr=0.1)
    train(zero.module, zero, [dist.get_rank()], steps=1)
    seen = weakref.ref(zero), weakref.ref(zero.module)
    del zero
    gc.collect()
    assert [one() for one in seen] == [None, None]


def refused() -> None:
    """What a person can do wrong has its sentence."""
    half = nn.Linear(2, 2).bfloat16()
    model = model_of(0)
    outside = nn.Linear(2, 2)
    wrong: list[tuple[str, Callable[[], Any]]] = [
        ("choose 'fp32' or 'mixed'", lambda: ZeroStage1(model, precision="fp8")),
        ("choose 'error' or 'zeros'", lambda: ZeroStage1(model, unused="maybe")),
        ("nothing to train", lambda: ZeroStage2(nn.Linear(2, 2).requires_grad_(False))),
        ("weight, bias has 16 bits, in which small steps", lambda: ZeroStage2(half)),
        ("AdamW takes no momentum here", lambda: ZeroStage3(model, momentum=0.9)),
        (
            "norm.weight, norm.bias is trained but in no group",
            lambda: ZeroStage1(model, groups=without_last_norm(model)),
        ),
        ("not in the model", lambda: ZeroStage1(model, groups=[{"params": outside.parameters()}])),
        ("this Linear is not", lambda: ZeroStage3(model, layers=[outside])),
        (
            "this Linear is in another",
            lambda: ZeroStage3(model, layers=[*model.blocks, model.get_submodule("blocks.0.up")]),
        ),
        ("1 or more", lambda: ZeroStage1(model, bucket_bytes=0)),
    ]
    for words, call in wrong:
        with pytest.raises(ValueError, match=words):
            call()
    zero = ZeroStage2(model_of(0))
    with zero.no_sync():
        zero(*batch(0, 0, [0])).backward()
    with pytest.raises(RuntimeError, match="kept back the gradients of embed.weight.*outside no_sync"):
        zero.step()
    for replaced in (zero.state_dict, lambda: zero.load_state_dict({})):
        with pytest.raises(NotImplementedError, match="with zero.full_parameters"):
            replaced()
    with pytest.raises(ValueError, match="settled when the model is sharded"):
        zero.add_param_group({"params": outside.parameters()})
    with pytest.raises(ValueError, match="takes no closure"):
        zero.step(lambda: 0.0)  # type: ignore[arg-type]


def without_last_norm(model: nn.Module) -> list[dict[str, Any]]:
    return [{"params": [p for name, p in model.named_parameters() if not name.startswith("norm")], **DEFAULTS}]
