"""What the tests of ZeRO's traffic and memory run on every rank: four layers of different sizes, one step."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from kit.topics.zero.reference import ZeroStage1, ZeroStage2, ZeroStage3

SIZES = (5, 7, 11, 6, 3)
LAYERS = [a * b + b for a, b in zip(SIZES, SIZES[1:], strict=False)]  # parameters of each layer: 42, 88, 72, 21
P = sum(LAYERS)
K = 2 * len(LAYERS)
BUCKET_BYTES = 400  # 100 elements: the last layer's 21 and the third's 72, the second's 88 and a bias of 7, ...
BUCKETS = [93, 95, 35]
STAGES: dict[int, Any] = {1: ZeroStage1, 2: ZeroStage2, 3: ZeroStage3}


def model_of(sizes: tuple[int, ...] = SIZES) -> nn.Sequential:
    torch.manual_seed(dist.get_rank())
    return nn.Sequential(*(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False)))


def samples(sizes: tuple[int, ...] = SIZES) -> torch.Tensor:
    return torch.randn(4, sizes[0])


def one_step(stage: int, m: int, quiet: bool = False, clip: float | None = None, **options: Any) -> tuple[int, int]:
    """One step of m micro-batches. Returns when the last backward began, and when its last gradient came (ns)."""
    model, last, began = model_of(), [0], 0
    first: Any = model[0].weight
    first.register_post_accumulate_grad_hook(lambda p: last.append(time.monotonic_ns()))
    zero = STAGES[stage](model, **options)
    for micro in range(m):
        with zero.no_sync() if quiet and micro < m - 1 else nullcontext():
            loss = zero(samples()).square().mean() / m
            began = time.monotonic_ns()
            loss.backward()
    if clip is not None:
        zero.clip(clip)
    zero.step()
    return began, last[-1]


class Held(NamedTuple):
    """Bytes of one rank at one moment. The first three are what the formulas speak of; the others come on top."""

    parameters: int
    gradients: int
    optimizer: int
    gathered: int  # layers in hand
    buckets: int  # gradients that travel


def bytes_held(zero: Any) -> Held:
    """Of what a stage says it holds; stage 1's gradients are summed in place, so their bucket is no other memory."""
    kinds = zero.tensors_held()
    gathered, gradients = nbytes(zero.gathered()), kinds["gradients"]
    buckets = nbytes([*kinds["communication buffers"], *gradients]) - nbytes(gradients) - gathered
    return Held(nbytes(kinds["parameters"]), nbytes(gradients), nbytes(kinds["optimizer state"]), gathered, buckets)


def nbytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of memory behind tensors: each piece of memory once, however many look at it."""
    memories = [x.untyped_storage() for x in tensors]
    return sum({memory.data_ptr(): memory.nbytes() for memory in memories}.values())


def held(stage: int, precision: str, sizes: tuple[int, ...] = SIZES, **options: Any) -> dict[str, Any]:
    """What a stage says it holds: at moments of a step, and at most during it."""
    there = tensors()
    zero = STAGES[stage](model_of(sizes), precision=precision, **options)
    gathered, gradients = [], []

    def look(*_: Any) -> None:
        now = bytes_held(zero)
        gathered.append(now.gathered)
        gradients.append(now.gradients + now.buckets)

    for layer in zero.module:
        layer.register_forward_hook(look)
        for p in layer.parameters():
            p.register_hook(look)
    found: dict[str, Any] = {}
    for _ in range(2):  # the order of layers is known the second time
        zero.zero_grad()
        loss = zero(samples(sizes)).square().mean()
        found["before backward"] = bytes_held(zero)
        loss.backward()
        look()
        del loss
        gc.collect()
        found["after backward"] = bytes_held(zero)
        hidden = nbytes(tensors().values()) - nbytes(there.values()) - sum(bytes_held(zero))
        found["nothing else"] = hidden - (P_GONE[precision] if stage == 3 else 0)
        zero.step()
    return {**found, "at most gathered": max(gathered), "most gradients": max(gradients)}


P_GONE = {"fp32": 4 * len(LAYERS), "mixed": 2 * len(LAYERS)}  # stage 3: one NaN for each layer's parameters to read


def tensors() -> dict[int, torch.Tensor]:
    """All tensors of this process that Python knows, by identity."""
    found: dict[int, torch.Tensor] = {}
    for one in gc.get_objects():
        if isinstance(one, torch.Tensor):
            found[id(one)] = one
            if one.is_leaf and one.grad is not None:
                found[id(one.grad)] = one.grad
    return found


def train(stage: int, sizes: tuple[int, ...], **options: Any) -> None:
    """Two steps, for an account of memory."""
    zero = STAGES[stage](model_of(sizes), **options)
    for _ in range(2):
        zero.zero_grad()
        zero(samples(sizes)).square().mean().backward()
        zero.step()
