"""A GPT cut into stages on one rank, and the same GPT whole: what a run of a schedule is compared with."""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist

from kit.gpt.model import GPT, GPTConfig, loss_of
from kit.plan.schedule import read
from kit.topics.pipeline.drives import Result, sketch
from kit.topics.pipeline.reference import Pipeline, cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from kit.plan.schedule import Schedule
    from kit.topics.pipeline.reference.stages import Model, Stage

Tensor = torch.Tensor
TIMES = 3  # that a pass is timed; the shortest counts


def model(config: GPTConfig) -> GPT:
    """Equal weights wherever it is made; whoever calls draws on as before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return GPT(config, device="cpu")


def batch(config: GPTConfig, m: int, size: int) -> tuple[list[Tensor], list[Tensor]]:
    """Of m micro-batches the tokens (B, T), and those that follow them."""
    source = torch.Generator().manual_seed(m)
    shape = (m, size, config.block_size + 1)
    both = torch.randint(config.vocab_size, shape, generator=source, device="cpu").to(torch.get_default_device())
    return list(both[..., :-1]), list(both[..., 1:])


def train(text: str, depth: int, config: GPTConfig, size: int, steps: int) -> Result:
    """Steps of a schedule on this rank, each from the same weights. text: the schedule. size: of a micro-batch.

    Returns what the last step gave: losses, and of the gradients of this rank's stages a sketch each, by the names that
    they have in their stage.
    """
    plan = read(text, stages=depth)
    row = plan.rows[dist.get_rank()]
    whole = cut(cast("Model", model(config).to(torch.get_default_device())), depth)
    own = {number: whole[number % depth] for number in sorted({one.stage for one in row})}
    like = torch.empty(size, config.block_size, config.n_embd)  # (B, T, C)
    pipeline = Pipeline(plan.rows, own, depth, like, loss_of)
    alike = held_by_several(plan, whole, config.tied)
    inputs, targets = batch(config, plan.micro_batches, size)
    losses: list[Tensor] = []
    for _ in range(steps):
        for stage in own.values():
            stage.zero_grad()
        losses = pipeline.step(inputs, targets)
        for group, weights in alike:
            for weight in weights:
                dist.all_reduce(weight.grad, group=group)
    ended_here = sorted(one.micro_batch for one in row if one.kind == "F" and plan.is_last(one.stage))
    return dict(zip(ended_here, losses, strict=True)), {
        name: sketch(parameter.grad)
        for stage in own.values()
        for name, parameter in stage.named_parameters()
        if parameter.grad is not None
    }


def held_by_several(
    plan: Schedule, whole: Sequence[Stage], tied: bool
) -> list[tuple[dist.ProcessGroup, list[nn.Parameter]]]:
    """The weights that this rank shares with others, whose gradients are added so that all go on equal: where two
    copies of the model run, those of its stages; where the head is the embedding's matrix, that matrix.

    All ranks call it at the same time: groups are made.
    """
    homes = [{plan.rank_of[s + copy * plan.stages] for copy in range(plan.copies)} for s in range(plan.stages)]
    matrix = whole[0].tokens.weight if tied else None
    held: dict[tuple[int, ...], dict[nn.Parameter, None]] = {}
    for stage, home in zip(whole, homes, strict=True):
        for weight in stage.parameters():
            ranks = homes[0] | homes[-1] if weight is matrix else home
            held.setdefault(tuple(sorted(ranks)), {})[weight] = None
    shared = [(ranks, list(weights)) for ranks, weights in held.items() if len(ranks) > 1]
    groups = [(dist.new_group(list(ranks)), ranks, weights) for ranks, weights in shared]
    return [(group, weights) for group, ranks, weights in groups if dist.get_rank() in ranks]


def serial(config: GPTConfig, m: int, size: int) -> Result:
    whole = model(config)
    losses = [loss_of(whole(x.cpu())[0], y.cpu()) for x, y in zip(*batch(config, m, size), strict=True)]
    (sum(losses, torch.zeros((), device="cpu")) / m).backward()
    found = {name: p.grad for name, p in whole.named_parameters() if p.grad is not None}
    return {j: loss.detach() for j, loss in enumerate(losses)}, found


def wrong(results: list[Any], config: GPTConfig, m: int, size: int) -> str:
    """What differs from the whole GPT, in a sentence; '' where nothing does. A tied head has the embedding's name."""
    losses, gradients = serial(config, m, size)
    right = {name: sketch(gradient) for name, gradient in gradients.items()}
    got = {j: loss for own, _ in results for j, loss in own.items()}
    for j, loss in losses.items():
        if j not in got or not torch.allclose(got[j].cpu(), loss, rtol=1e-4, atol=1e-6):
            return f"the loss of micro-batch {j} is {got.get(j)}, and {loss:.6g} without a pipeline"
    found: set[str] = set()
    for _, own in results:
        for name, gradient in own.items():
            name = "tokens.weight" if config.tied and name == "unembed.weight" else name
            found.add(name)
            if not torch.allclose(gradient, right[name], rtol=1e-4, atol=1e-4 * float(right[name].abs().max())):
                return f"the gradient of {name} is not that of the model without a pipeline"
    missing = next((name for name in right if name not in found), None)
    return "" if missing is None else f"{missing} has no gradient"


@cache
def seconds(config: GPTConfig, depth: int, size: int) -> tuple[tuple[float, float], ...]:
    """By stage, what a micro-batch takes forward and backward here, in one process."""
    stages = cut(cast("Model", model(config)), depth)
    x, target = (one[0].cpu() for one in batch(config, 1, size))  # (B, T)
    took = []
    for number, stage in enumerate(stages):
        rounds = [_timed(stage, x, target if number == depth - 1 else None) for _ in range(TIMES)]
        took.append((min(one for one, _, _ in rounds), min(two for _, two, _ in rounds)))
        x = rounds[-1][2]
    return tuple(took)


def _timed(stage: torch.nn.Module, x: Tensor, target: Tensor | None) -> tuple[float, float, Tensor]:
    """Seconds forward and backward, and what came out."""
    x = x.requires_grad_() if x.is_floating_point() else x
    began = time.perf_counter()
    y: Tensor = stage(x)  # (B, T, C)
    out = loss_of(y, target) if target is not None else y.sum()
    between = time.perf_counter()
    out.backward()  # to be given a gradient, torch would load its symbols: 40 MB
    return between - began, time.perf_counter() - between, y.detach()
