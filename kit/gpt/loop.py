"""The training loop as one writes it in a lab: a model, its batches, an optimizer; a step each time one is asked for.

Nothing here knows of ranks. A wrapper that averages gradients (as torch's DistributedDataParallel does) is handed
in, and each rank's batches are its own (`kit.gpt.data.batches`). A training by a strategy, which is validated, saved
and gone on with, is `kit.gpt.trainer`'s.
Letters: B batch, T sequence, m micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import nn

from kit.gpt.data import Batch
from kit.gpt.model import decay_groups
from kit.gpt.recipe import cosine

Wrap = Callable[[nn.Module], nn.Module]


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did, as this rank knows it."""

    number: int  # from 0
    loss: float  # nats, the mean over this rank's windows, before the step
    norm: float  # of all gradients together, before clipping
    rate: float


def accumulate(model: nn.Module, micro_batches: list[Batch]) -> float:
    """Leaves in every `.grad` the gradient of the mean loss over m micro-batches, each (B, T); returns that loss.

    Each loss is divided by m, because gradients add up. All but the last go without averaging between ranks, where
    the wrapper knows how (`no_sync`). Raises ValueError for no micro-batches, as where the batches have come to an end.
    """
    if not micro_batches:
        raise ValueError("there is no batch to train on: have the batches come to an end?")
    m, total = len(micro_batches), 0.0
    for number, (tokens, targets) in enumerate(micro_batches):
        quiet = getattr(model, "no_sync", nullcontext) if number < m - 1 else nullcontext
        with quiet():
            _, loss = model(tokens, targets)  # (B, T, V), ()
            (loss / m).backward()
        total += loss.item() / m
    return total


def training(
    model: nn.Module,
    batches: Iterator[Batch],
    *,
    steps: int,
    rate: float,
    wrap: Wrap | None = None,
    optimizer: Any = None,
    micro_batches: int = 1,
    warm_up: int = 0,
    floor: float = 0.0,
    clip: float | None = 1.0,
    weight_decay: float = 0.1,
) -> Iterator[Step]:
    """Trains `model` in place, a step each time it is asked for the next `Step`.

    rate: the peak; `cosine` makes the rest of it from steps, warm_up and floor. wrap: called with the model once, gives
    what is called in its place (a DDP). optimizer: made already, its rate is set here; None: AdamW with betas 0.9 and
    0.95, `weight_decay` on matrices alone. clip: the largest norm of all gradients together, None: any; it expects
    whole gradients on every rank, so an optimizer with a `clip` of its own (ZeRO's) does it. Raises ValueError for
    fewer than one step or micro-batch, and for rates, a decay or a norm below 0.
    """
    if steps < 1 or micro_batches < 1:
        raise ValueError(f"training takes at least one step and one micro-batch, not {steps} and {micro_batches}")
    numbers = {"rate": rate, "floor": floor, "weight_decay": weight_decay, "clip": 0.0 if clip is None else clip}
    for name, number in numbers.items():
        if not number >= 0:  # NaN fails this too
            raise ValueError(f"{name} is 0 or more, not {number!r}")
    cosine(0, peak=rate, steps=steps, warm_up=warm_up, floor=floor)  # checks before any work

    def one_by_one() -> Iterator[Step]:
        called = model if wrap is None else wrap(model)
        adam = (
            torch.optim.AdamW(decay_groups(model, weight_decay), betas=(0.9, 0.95)) if optimizer is None else optimizer
        )
        model.train()
        coming = iter(batches)  # a list would begin anew in every step
        norm_of = getattr(adam, "clip", None) or partial(nn.utils.clip_grad_norm_, [*model.parameters()])
        for number in range(steps):
            now = cosine(number, peak=rate, steps=steps, warm_up=warm_up, floor=floor)
            for group in adam.param_groups:
                group["lr"] = now
            loss = accumulate(called, list(islice(coming, micro_batches)))
            norm = norm_of(float("inf") if clip is None else clip)
            adam.step()
            adam.zero_grad(set_to_none=True)
            yield Step(number, loss, float(norm), now)

    return one_by_one()
