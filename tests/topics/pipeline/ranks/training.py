"""What pipelines are compared on: run on gloo ranks by tests/gloo.py."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from kit.gpt.model import GPT, GPTConfig, loss_of
from kit.plan.families import schedule
from kit.plan.lowered import lowered
from kit.topics.pipeline.reference import Pipeline, by_hand, cut, sum_tied

Tensor = torch.Tensor
Result = tuple[dict[int, Tensor], dict[str, Tensor]]  # losses by micro-batch, gradients by parameter's name
B, T, C, V = 2, 4, 16, 65


def config(blocks: int, tied: bool = True) -> GPTConfig:
    return GPTConfig(n_layer=blocks, n_head=2, n_embd=C, block_size=T, vocab_size=V, tied=tied)


def model_of(blocks: int, tied: bool = True) -> GPT:
    torch.manual_seed(0)
    model = GPT(config(blocks, tied), device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms of their own, so that all gradients matter
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def batch(m: int) -> tuple[list[Tensor], list[Tensor]]:
    torch.manual_seed(1)
    tokens = torch.randint(V, (m, B, T + 1))
    return [x[:, :-1] for x in tokens], [x[:, 1:] for x in tokens]


def gradients(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


def serial(blocks: int, m: int, tied: bool = True) -> Result:
    model, losses = model_of(blocks, tied), []
    for x, y in zip(*batch(m), strict=True):
        loss = model(x, y)[1]
        (loss / m).backward()
        losses.append(loss.detach())
    return dict(enumerate(losses)), gradients(model)


def piped(family: str, m: int, chunks: int | None, blocks: int, tied: bool = True, steps: int = 1) -> Result:
    """One rank's losses and gradients, named as in the whole model."""
    plan = schedule(family, dist.get_world_size(), m, chunks)
    mine = {action.stage for action in plan.rows[dist.get_rank()]}
    stages = {}
    for copy in range(plan.copies):
        whole = cut(model_of(blocks, tied), plan.stages)
        stages |= {copy * plan.stages + s: one for s, one in enumerate(whole) if copy * plan.stages + s in mine}
    pipeline = Pipeline(plan.rows, stages, plan.stages, torch.empty(B, T, C), loss_of)
    ends = [plan.rank_of[end] for end in (0, plan.stages - 1)]
    both = dist.new_group(sorted(set(ends)))
    for _ in range(steps):
        for stage in stages.values():
            stage.zero_grad()
        losses = pipeline.step(*batch(m))
    if tied and plan.copies == 1:
        sum_tied(stages, both)
    here = sorted(a.micro_batch for a in plan.rows[dist.get_rank()] if a.kind == "F" and plan.is_last(a.stage))
    named: dict[str, Tensor] = {}
    for stage in stages.values():
        for name, gradient in gradients(stage).items():
            name = name if not (tied and name == "unembed.weight") else "tokens.weight"
            named[name] = named[name] + gradient if plan.copies > 1 and name in named else gradient
    return dict(zip(here, losses, strict=True)), named


def by_hand_result(way: str, m: int, blocks: int) -> Result:
    p, r = dist.get_world_size(), dist.get_rank()
    stage = cut(model_of(blocks, tied=False), p)[r]
    step: Callable[..., list[Tensor]] = getattr(by_hand, way)
    inputs, targets = batch(m)
    losses = step(stage, inputs, targets, torch.empty(B, T, C), loss_of)
    return dict(enumerate(losses)), gradients(stage)


def by_torch(family: str, m: int, chunks: int | None, blocks: int, messages: bool = False) -> Result:
    """torch's own runtime with our schedule, in torch's text form; messages: with ours, not those that torch adds."""
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    r = dist.get_rank()
    plan = schedule(family, dist.get_world_size(), m, chunks)
    mine = sorted({action.stage for action in plan.rows[r]})
    whole = cut(model_of(blocks, tied=False), plan.stages)
    inputs, targets = batch(m)
    made = [PipelineStage(whole[s], s, plan.stages, torch.device("cpu")) for s in mine]
    runtime = _PipelineScheduleRuntime(made, m, loss_fn=loss_of)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "schedule.csv"
        file.write_text(lowered(plan) if messages else plan.text())
        runtime._load_csv(str(file), format="compute_comms" if messages else "compute_only")
    losses: list[Tensor] = []
    given = [torch.cat(inputs)] if 0 in mine else []
    last = plan.stages - 1 in mine
    runtime.step(*given, target=torch.cat(targets) if last else None, losses=losses if last else None)
    return {j: loss.detach() for j, loss in enumerate(losses)}, {
        k: v for s in mine for k, v in gradients(whole[s]).items()
    }


def refusals() -> list[str]:
    stage = cut(model_of(4), 2)
    like = torch.empty(B, T, C)
    four = schedule("1F1B", 2, 4)

    def short() -> None:
        pipeline = Pipeline(four.rows, {dist.get_rank(): stage[dist.get_rank()]}, 2, like, loss_of)
        inputs, targets = batch(3)
        pipeline.step(inputs, targets)

    cases: list[Callable[[], object]] = [
        lambda: Pipeline(schedule("1F1B", 3, 4).rows, {}, 3, like, loss_of),
        lambda: Pipeline(four.rows, dict(enumerate(stage)), 2, like, loss_of),
        short,
        lambda: cut(model_of(4), 5),
    ]
    told = []
    for case in cases:
        try:
            case()
        except ValueError as error:
            told.append(str(error))
    return told
