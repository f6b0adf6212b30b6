"""A model laid out over ranks: a page of contents.

Letters: B, T, C of what passes between stages of a pipeline; n ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from kit.topics.data_parallel.reference.ddp import BucketedDDP
from kit.topics.gpt.reference.ladder import PLAIN, Exact, Extras, arithmetic, attending, check_device
from kit.topics.gpt.reference.layout import Layout
from kit.topics.gpt.reference.mesh import Groups
from kit.topics.gpt.reference.pipelined import (
    Alone,
    Averaged,
    Averaging,
    InShards,
    Passing,
    Pipelined,
    Shared,
    StageInShards,
    held_here,
)
from kit.topics.gpt.reference.replicas import Adam, Replica, Sharded, Stepper, Whole
from kit.topics.gpt.reference.state import names_of
from kit.topics.pipeline.reference.mail import Rows, lines
from kit.topics.pipeline.reference.runtime import Pipeline
from kit.topics.pipeline.reference.stages import Stage, cut
from kit.topics.tensor.reference.gpt import TensorParallelGPT
from kit.topics.tensor.reference.layers import vocabulary_loss
from kit.topics.zero.reference.optimizer import ZeroOptimizer
from kit.topics.zero.reference.stages import ZeroStage1, ZeroStage2, ZeroStage3

Tensor = torch.Tensor
LossOf = Callable[[Tensor, Tensor], Tensor]
ZERO: dict[str, Callable[..., ZeroOptimizer]] = {"zero1": ZeroStage1, "zero2": ZeroStage2, "zero3": ZeroStage3}


@dataclass(frozen=True)
class Line:
    """What a pipeline is told beside its model: rows, by rank the actions of a step; depth, stages of the model; like,
    a tensor as it passes between stages (B, T, C); loss_of(logits, targets) -> ().
    """

    rows: Rows
    depth: int
    like: Tensor
    loss_of: LossOf

    @cached_property
    def home(self) -> dict[int, int]:
        """Of each stage its rank."""
        return {action.stage: rank for rank, row in enumerate(self.rows) for action in row}


def parallelize(
    model: Any, layout: Layout, adam: Adam, *, line: Line | None = None, extras: Extras = PLAIN, seed: int = 0
) -> Replica | Pipelined:
    """The model on this rank's device, its weights equal on all ranks, as the layout says; every rank calls.

    line: for a layout with a pipeline. seed: of dropout inside tensor parallel layers, the same on every rank. Raises
    ValueError for a layout that cannot be had.
    """
    check(layout, extras)
    check_recipe(model, adam, layout)
    device = next(model.parameters()).device
    check_device(extras, device)
    adam = replace(adam, fused=extras.adamw == "fused")
    numbers = arithmetic(extras, device)
    if extras.recompute and layout.tp > 1 and model.dropout.p:
        raise ValueError(f"recomputed layers would drop other elements than before in {layout}: set dropout to 0")
    groups = Groups.of(layout, device)
    if layout.pp > 1:
        assert line is not None, "a pipeline has a schedule"
        return in_stages(model, layout, groups, adam, line, extras, seed, numbers)
    if extras.built_in and layout.tp > 1:
        replica = layers_by_torch(model, layout, groups, adam, device, extras)
        replica.numbers = numbers
        return replica
    module, counted = in_shards(model, layout, groups, seed)
    if extras.recompute:
        recompute_blocks(module)
    if extras.compile:
        module.compile(backend=extras.compile)
    if extras.built_in:
        replica = by_torch(module, layout, groups, adam, device)
    elif layout.data in ZERO:
        replica = sharded(module, counted, layout, groups, adam, device)
    else:
        replica = averaged(module, counted, groups, adam, device)
    replica.numbers, replica.attending = numbers, partial(attending, extras)
    return replica


def recompute_blocks(model: Any) -> None:
    """Of each block only what came in is kept for the backward pass, which computes the rest again."""
    for block in model.blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def in_shards(model: Any, layout: Layout, groups: Groups, seed: int) -> tuple[Any, list[nn.Parameter]]:
    """The model with its layers cut over the tensor-parallel group, and the parameters whose norm counts here."""
    if groups.tp is None:
        return model, list(model.parameters())
    own = layout.stream(dist.get_rank()) * (layout.tp + 1)  # 1 + tp rows of numbers for each
    module = TensorParallelGPT(model, groups.tp, layout.sequence, seed + own)
    first = dist.get_rank(groups.tp) == 0  # what all ranks hold alike counts there
    return module, [p for p in module.parameters() if first or hasattr(p, "cut")]


def averaged(
    module: nn.Module, counted: list[nn.Parameter], groups: Groups, adam: Adam, device: torch.device
) -> Replica:
    """All of the module on every rank, gradients averaged in buckets while backward goes on."""
    stepper = Whole(adam.of(module), counted, groups.there("tp"))
    if groups.dp is None:
        return Replica(module, module, stepper, device, None, groups.tp)
    called = BucketedDDP(module, groups.dp)
    return Replica(called, module, stepper, device, groups.dp, groups.tp, called.no_sync)


def sharded(
    module: nn.Module, counted: list[nn.Parameter], layout: Layout, groups: Groups, adam: Adam, device: torch.device
) -> Replica:
    """A stage of ZeRO: optimizer, gradients, weights in shards."""
    zero = zero_of(module, layout, groups, adam)
    stepper = Sharded(zero, counted, groups.there("dp", "tp"))
    quiet = zero.no_sync if layout.data == "zero1" else None  # the others have no room for whole gradients
    return Replica(zero, module, stepper, device, groups.dp, groups.tp, quiet)


def zero_of(module: nn.Module, layout: Layout, groups: Groups, adam: Adam) -> ZeroOptimizer:
    """What steps this rank's shards."""
    stage = ZERO[layout.data]
    return stage(module, groups.dp, groups=adam.groups(module), lr=0.0, betas=adam.betas, eps=adam.eps)


def in_stages(
    model: Any, layout: Layout, groups: Groups, adam: Adam, line: Line, extras: Extras, seed: int, numbers: Exact
) -> Pipelined:
    """Stages on ranks as the rows have them; gradients of replicas averaged when a step is through."""
    module, owned = in_shards(model, layout, groups, seed)
    if extras.recompute:
        recompute_blocks(module)
    twin = module.tokens.weight if module.unembed is None else None
    stages, held = on_their_ranks(module, line, StageInShards if layout.tp > 1 else Stage)
    me = dist.get_rank(groups.pp)
    mine = {number: stage for number, stage in stages.items() if line.home[number] == me}
    names = names_of(mine.values(), twin)
    shared = shared_weights(names, held, groups)
    counted = [p for name, p in names.items() if held[name][0] == me and p in set(owned)]
    stepper, average = stepped_after(held_here(mine), counted, layout, groups, adam)
    like = line.like.chunk(layout.tp, 1)[0].contiguous() if layout.sequence else line.like  # (B, T, C) or (B, T/n, C)
    loss_of = line.loss_of if groups.tp is None else partial(vocabulary_loss, group=groups.tp)
    for stage in mine.values():
        stage.forward = numbers.within(stage.forward)  # type: ignore[method-assign, assignment]
    forward = [[action for action in row if action.kind == "F"] for row in line.rows]
    looking = Pipeline(forward, mine, line.depth, like, loss_of, groups.pp)

    def back_from(y: Tensor, target: Tensor) -> Tensor:
        return numbers.scaled(loss_of(y, target))  # ()

    training: Passing = (
        by_torchs_runtime(layout, line, mine, like, back_from, groups)
        if extras.built_in
        else Pipeline(line.rows, mine, line.depth, like, back_from, groups.pp)
    )
    around = partial(attending, extras)
    return Pipelined(mine, training, looking, stepper, groups, shared, average, twin, like.device, numbers, around)


def by_torchs_runtime(
    layout: Layout, line: Line, stages: dict[int, Stage], like: Tensor, loss_of: LossOf, groups: Groups
) -> Passing:
    """Through the stages and back by torch.distributed.pipelining, and its own schedule of that name."""
    from kit.topics.gpt.reference import built_in

    m = 1 + max(action.micro_batch for row in line.rows for action in row)
    return built_in.TorchPipeline(layout.schedule, stages, line.depth, m, loss_of, groups.pp, like)


def on_their_ranks(module: Any, line: Line, kind: type[Stage]) -> tuple[dict[int, Stage], dict[str, list[int]]]:
    """All stages by number, and of each weight, by its name in the model, the ranks of the pipeline that hold it.

    Where two copies of the model run, a rank has stages of both, and none of them twice.
    """
    twin = module.tokens.weight if module.unembed is None else None
    stages = dict(enumerate(cut(module, line.depth, kind) * (len(line.home) // line.depth)))
    held: dict[str, set[int]] = {}
    for number, stage in stages.items():
        for name in names_of([stage], twin):
            held.setdefault(name, set()).add(line.home[number])
    return stages, {name: sorted(ranks) for name, ranks in held.items()}


def shared_weights(names: dict[str, nn.Parameter], held: dict[str, list[int]], groups: Groups) -> list[Shared]:
    """What this rank and others of its pipeline hold; all ranks call, since groups are made of those that do."""
    found = []
    for holders in sorted({tuple(ranks) for ranks in held.values() if len(ranks) > 1}):
        for ranks in lines(groups.pp):
            made = dist.new_group([ranks[r] for r in holders])
            if dist.get_rank() in (ranks[r] for r in holders):
                found.append(Shared(made, [names[name] for name in sorted(names) if tuple(held[name]) == holders]))
    return found


def stepped_after(
    module: nn.Module, counted: list[nn.Parameter], layout: Layout, groups: Groups, adam: Adam
) -> tuple[Stepper, Averaging]:
    """Who steps this rank's stages, and how gradients become those of all data before."""
    if groups.dp is None:
        return Whole(adam.of(module), counted, groups.there("tp", "pp")), Alone()
    if layout.data == "zero1":
        zero = zero_of(module, layout, groups, adam)
        return Sharded(zero, counted, groups.there("dp", "tp", "pp")), InShards(zero)
    average = Averaged(list(module.parameters()), groups.dp)
    return Whole(adam.of(module), counted, groups.there("tp", "pp")), average


def layers_by_torch(
    model: Any, layout: Layout, groups: Groups, adam: Adam, device: torch.device, extras: Extras
) -> Replica:
    """Layers in shards by torch's DTensor."""
    from kit.topics.gpt.reference import built_in  # loads what takes seconds, for those who ask for it

    if model.dropout.p:
        raise ValueError("DTensor would drop the same elements of different heads: set dropout to 0, or leave built_in")
    assert groups.mesh is not None, "ranks share layers"
    if extras.recompute:
        recompute_blocks(model)
    around = partial(attending, extras)
    return built_in.tensor_parallel(model, groups.mesh["tp"], adam, device, sequence=layout.sequence, attending=around)


def by_torch(module: nn.Module, layout: Layout, groups: Groups, adam: Adam, device: torch.device) -> Replica:
    """The same by torch's own."""
    from kit.topics.gpt.reference import built_in  # loads what takes seconds, for those who ask for it

    assert groups.mesh is not None and groups.dp is not None, "checked before"
    if layout.data == "ddp":
        return built_in.averaged(module, groups.dp, adam, device)
    if layout.data == "zero1":
        return built_in.optimizer_sharded(module, groups.dp, adam, device)
    return built_in.fully_sharded(module, groups.mesh["dp"], adam, device, keep_weights=layout.data == "zero2")


def check_recipe(model: Any, adam: Adam, layout: Layout) -> None:
    """Raises ValueError for a recipe that a layout would spoil."""
    if adam.muon and (layout.tp > 1 or layout.data in ZERO):
        raise ValueError(
            f"Muon takes the singular values of a whole matrix, and in {layout} a rank steps parts of them: train by"
            " single, ddp or pp, or with optimizer = 'adamw'"
        )
    if layout.tp > 1 and not hasattr(model, "positions"):
        raise ValueError(
            f"{layout} cuts the layers of a GPT with learnt positions, and this one has none: train by single, ddp,"
            " zero1 to zero3 or pp"
        )


def check(layout: Layout, extras: Extras) -> None:
    """Raises ValueError for what cannot be had together."""
    if layout.data in ZERO and layout.dp == 1:
        raise ValueError(f"{layout.data} shares out a model over ranks with different data, and here is one: add ranks")
    if layout.pp > 1 and layout.data in ("zero2", "zero3"):
        raise ValueError(
            f"{layout}: a pipeline takes its micro-batches one by one, and {layout.data} would send its shards for each"
            " of them: leave it out, ddp and zero1 go beside a pipeline"
        )
    if extras.built_in and sum(size > 1 for size in (layout.dp, layout.tp, layout.pp)) != 1:
        raise ValueError(f"torch's own is here for one strategy at a time, not for {layout}: leave the switch out")
    if extras.compile and (layout.data not in ("single", "ddp") or layout.tp * layout.pp > 1):
        raise ValueError(f"compiled models are tried with single and ddp, not with {layout}: leave compile out")
    if extras.adamw == "plain" and layout.data in ZERO:
        raise ValueError(f"{layout.data} steps shards with an AdamW of its own: leave the switch of AdamW out")
