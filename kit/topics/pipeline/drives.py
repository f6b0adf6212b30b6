"""A pipeline of paced stages on one rank, and the same without ranks: what a run of a schedule is compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from kit.plan.flaws import flaws
from kit.plan.schedule import read
from kit.topics.pipeline.reference import Pipeline
from kit.topics.pipeline.reference.paced import Paced
from kit.topics.pipeline.rows import from_rows

Tensor = torch.Tensor
Result = tuple[dict[int, Tensor], dict[str, Tensor]]  # losses by micro-batch, gradients by parameter's name
Seconds = tuple[float, float, float]  # of F, I and W
BATCH = 8


def stage(number: int, width: int, seconds: Seconds) -> nn.Module:
    """Equal weights wherever it is made. (B, C) -> (B, C)"""
    with torch.device("cpu"):
        layer = nn.Linear(width, width)
    torch.nn.init.normal_(layer.weight, std=width**-0.5, generator=torch.Generator().manual_seed(number))
    torch.nn.init.zeros_(layer.bias)
    return nn.Sequential(layer, nn.Tanh(), Paced(*seconds))


def batch(m: int, width: int) -> tuple[list[Tensor], list[Tensor]]:
    both = torch.randn(2, m, BATCH, width, generator=torch.Generator().manual_seed(m), device="cpu")
    here = torch.get_default_device()
    return list(both[0].to(here)), list(both[1].to(here))


def train(text: str, depth: int, width: int, seconds: dict[int, Seconds], steps: int) -> Result:
    """Steps of a schedule on this rank. text: the schedule. seconds: of F, I and W, by stage.

    Returns what the last step gave: losses, and of the gradients of this rank's stages a sketch each.
    """
    losses, gradients = trained(text, depth, width, seconds, steps)
    return losses, {name: sketch(gradient) for name, gradient in gradients.items()}


def sketch(gradient: Tensor) -> Tensor:
    """Four sums with fixed weights (4,): so little fits a recording, and two of them add up as the gradients do."""
    weights = torch.randn(4, gradient.numel(), generator=torch.Generator().manual_seed(0), device="cpu")
    return weights @ gradient.detach().cpu().flatten()


def trained(text: str, depth: int, width: int, seconds: dict[int, Seconds], steps: int) -> Result:
    """As `train`, with the whole gradients: '2.0.weight' is of stage 2."""
    plan = read(text, stages=depth)
    row = plan.rows[dist.get_rank()]
    own = {
        number: stage(number % depth, width, seconds[number % depth]).to(torch.get_default_device())
        for number in sorted({one.stage for one in row})
    }
    inputs, targets = batch(plan.micro_batches, width)
    pipeline = Pipeline(plan.rows, own, depth, torch.empty(BATCH, width), nn.functional.mse_loss)
    losses: list[Tensor] = []
    for _ in range(steps):
        for one in own.values():
            one.zero_grad()
        losses = pipeline.step(inputs, targets)
    ended_here = sorted(one.micro_batch for one in row if one.kind == "F" and plan.is_last(one.stage))
    return dict(zip(ended_here, losses, strict=True)), {
        f"{number}.{name}": parameter.grad
        for number, one in own.items()
        for name, parameter in one.named_parameters()
        if parameter.grad is not None
    }


def serial(depth: int, m: int, width: int) -> Result:
    """The same without ranks and without sleep."""
    whole = nn.Sequential(*(stage(number, width, (0.0, 0.0, 0.0)) for number in range(depth)))
    losses = [nn.functional.mse_loss(whole(x), y) for x, y in zip(*batch(m, width), strict=True)]
    (sum(losses, torch.zeros(())) / m).backward()
    gradients = {name: parameter.grad for name, parameter in whole.named_parameters() if parameter.grad is not None}
    return {j: loss.detach() for j, loss in enumerate(losses)}, gradients


def wrong(results: list[Any], depth: int, m: int, width: int) -> str:
    """What differs from the serial run, in a sentence; '' where nothing does. Copies of a stage are added up."""
    losses, gradients = serial(depth, m, width)
    got: dict[int, Tensor] = {}
    found: dict[str, Tensor] = {}
    for own_losses, own in results:
        got |= own_losses
        for name, gradient in own.items():
            number, rest = name.split(".", 1)
            name = f"{int(number) % depth}.{rest}"
            found[name] = found[name] + gradient if name in found else gradient
    for j, loss in losses.items():
        if j not in got:
            return f"the loss of micro-batch {j} is missing"
        if not torch.allclose(got[j].cpu(), loss, rtol=1e-4, atol=1e-6):
            return f"the loss of micro-batch {j} is {got[j]:.6g}, and {loss:.6g} without a pipeline"
    for name, gradient in gradients.items():
        if name not in found:
            return f"stage {name.split('.')[0]} has no gradient"
        right = sketch(gradient)
        if not torch.allclose(found[name], right, rtol=1e-4, atol=1e-4 * float(right.abs().max())):
            return f"the gradient of stage {name.split('.')[0]} is not that of the model without a pipeline"
    return ""


def flat(losses: dict[int, Tensor], gradients: dict[str, Tensor], depth: int) -> list[Tensor]:
    """For each stage its gradients end to end, of the last one behind its losses."""
    own = [
        torch.cat([gradient.flatten() for name, gradient in gradients.items() if name.startswith(f"{number}.")])
        for number in range(depth)
    ]
    own[-1] = torch.cat([*(losses[j].view(1) for j in sorted(losses)), own[-1]])
    return own


# -- how lab 06a's functions are used on a rank


def by_rows(function: Callable[..., Any], m: int, seen: dict[str, Any]) -> Tensor:
    """Every rank makes its row; if together they can run, they do. seen: this rank's row, for the check to judge."""
    p, r = dist.get_world_size(), dist.get_rank()
    row = function(r, p, m)
    seen["row"] = list(row) if isinstance(row, tuple | list) else row if row is None else repr(row)
    rows: list[Any] = [None] * p
    dist.all_gather_object(rows, seen["row"])
    try:
        plan = from_rows(rows, micro_batches=m)
    except ValueError:
        return torch.zeros(0)
    if flaws(plan):
        return torch.zeros(0)
    losses, gradients = trained(plan.text(), p, 4, dict.fromkeys(range(p), (0.0, 0.0, 0.0)), steps=1)
    return torch.cat([*(losses[j].view(1) for j in sorted(losses)), *(one.flatten() for one in gradients.values())])


def by_cut(function: Callable[..., Any], layers: list[int], p: int, seen: dict[str, Any]) -> int:
    """Every rank cuts. Returns how many layers have a stage. seen: this rank's cut, for the check to judge."""
    cut = function(list(layers), p)
    fits = isinstance(cut, list | tuple) and all(type(count) is int for count in cut)
    seen["cut"] = list(cut) if fits else repr(cut)
    return sum(cut) if fits else 0


def by_hand(function: Callable[..., Any], number: int, depth: int, m: int, seen: dict[str, Any]) -> Tensor | None:
    """One step of a stage by a function that sends and receives. Returns the stage's gradients, None without any."""
    own = stage(number, 4, (0.0, 0.0, 0.0)).to(torch.get_default_device())
    counted = Counted(own)
    inputs, targets = batch(m, 4)
    function(counted, inputs, targets, torch.zeros(BATCH, 4), nn.functional.mse_loss)
    seen["forward"] = counted.calls
    gradients = [parameter.grad for parameter in own.parameters()]
    if any(gradient is None for gradient in gradients):
        return None
    return torch.cat([gradient.flatten() for gradient in gradients if gradient is not None])


class Counted(nn.Module):
    """A stage that notes how often it was computed."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module, self.calls = module, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        y: Tensor = self.module(x)
        return y
