"""A model laid out over ranks: a page of contents.

Letters: B, T, C of what passes between stages of a pipeline; n ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.utils.checkpoint import checkpoint

from kit.topics.data_parallel.reference.ddp import BucketedDDP
from kit.topics.gpt.reference.layout import Layout
from kit.topics.gpt.reference.pipelined import Pipelined, held_here
from kit.topics.gpt.reference.replicas import Adam, Replica, Sharded, Whole
from kit.topics.pipeline.reference.mail import Rows
from kit.topics.pipeline.reference.stages import cut
from kit.topics.tensor.reference.gpt import TensorParallelGPT
from kit.topics.zero.reference.stages import ZeroStage1, ZeroStage2, ZeroStage3

Tensor = torch.Tensor
Group = dist.ProcessGroup
ZERO = {"zero1": ZeroStage1, "zero2": ZeroStage2, "zero3": ZeroStage3}


@dataclass(frozen=True)
class Groups:
    """This rank's rows of the mesh: which ranks it shares data, and layers, with. None: it is alone in that row."""

    rows: DeviceMesh | None = None
    dp: Group | None = None
    tp: Group | None = None

    @staticmethod
    def of(layout: Layout, device: torch.device) -> Groups:
        """All ranks call: groups are made."""
        if layout.ranks == 1:
            return Groups()
        mesh = init_device_mesh(device.type, (layout.dp, layout.tp), mesh_dim_names=("dp", "tp"))
        dp, tp = (mesh[name].get_group() if mesh[name].size() > 1 else None for name in ("dp", "tp"))
        return Groups(mesh, dp, tp)


@dataclass(frozen=True)
class Extras:
    """What any layout may have beside. recompute: activations, in place of keeping them. compile: torch.compile with
    this backend ('inductor'; '': none). built_in: torch's own wrappers and optimizers in the place of ours.
    """

    recompute: bool = False
    compile: str = ""
    built_in: bool = False


PLAIN = Extras()


@dataclass(frozen=True)
class Line:
    """What a pipeline is told beside its model: rows, by rank the actions of a step; depth, stages of the model; like,
    a tensor as it passes between stages (B, T, C); loss_of(logits, targets) -> ().
    """

    rows: Rows
    depth: int
    like: Tensor
    loss_of: Callable[[Tensor, Tensor], Tensor]


def parallelize(
    model: Any, layout: Layout, adam: Adam, *, line: Line | None = None, extras: Extras = PLAIN, seed: int = 0
) -> Replica | Pipelined:
    """The model on this rank's device, its weights equal on all ranks, as the layout says; every rank calls.

    line: for a layout with a pipeline. seed: of dropout inside tensor parallel layers, the same on every rank. Raises
    ValueError for a layout that cannot be had.
    """
    check(layout, extras)
    device = next(model.parameters()).device
    if extras.recompute:
        recompute_blocks(model)
    if layout.pp > 1:
        assert line is not None, "a pipeline has a schedule"
        return in_stages(model, adam, line)
    groups = Groups.of(layout, device)
    module, counted = in_shards(model, layout, groups, seed)
    if extras.compile:
        module.compile(backend=extras.compile)
    if extras.built_in:
        return by_torch(module, layout, groups, adam, device)
    if layout.data in ZERO:
        return sharded(module, counted, layout, groups, adam, device)
    return averaged(module, counted, groups, adam, device)


def recompute_blocks(model: Any) -> None:
    """Of each block only what came in is kept for the backward pass, which computes the rest again."""
    for block in model.blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def in_shards(model: Any, layout: Layout, groups: Groups, seed: int) -> tuple[nn.Module, list[nn.Parameter]]:
    """The model with its layers cut over the tensor-parallel group, and the parameters whose norm counts here."""
    if groups.tp is None:
        return model, list(model.parameters())
    d = 0 if groups.dp is None else dist.get_rank(groups.dp)
    module = TensorParallelGPT(model, groups.tp, layout.sequence, seed + d * (layout.tp + 1))  # 1 + tp rows of numbers
    first = dist.get_rank(groups.tp) == 0  # what all ranks hold alike counts there
    return module, [p for p in module.parameters() if first or hasattr(p, "cut")]


def averaged(
    module: nn.Module, counted: list[nn.Parameter], groups: Groups, adam: Adam, device: torch.device
) -> Replica:
    """All of the module on every rank, gradients averaged in buckets while backward goes on."""
    stepper = Whole(adam.of(module), counted, _there(groups.tp))
    if groups.dp is None:
        return Replica(module, module, stepper, device, None, groups.tp)
    called = BucketedDDP(module, groups.dp)
    return Replica(called, module, stepper, device, groups.dp, groups.tp, called.no_sync)


def sharded(
    module: nn.Module, counted: list[nn.Parameter], layout: Layout, groups: Groups, adam: Adam, device: torch.device
) -> Replica:
    """A stage of ZeRO: optimizer, gradients, weights in shards."""
    zero = ZERO[layout.data](module, groups.dp, groups=adam.groups(module), lr=0.0, betas=adam.betas, eps=adam.eps)
    stepper = Sharded(zero, counted, _there(groups.dp, groups.tp))
    quiet = zero.no_sync if layout.data == "zero1" else None  # the others have no room for whole gradients
    return Replica(zero, module, stepper, device, groups.dp, groups.tp, quiet)


def in_stages(model: Any, adam: Adam, line: Line) -> Pipelined:
    """Stages on ranks as the rows have them."""
    me = dist.get_rank()
    home = {action.stage: rank for rank, row in enumerate(line.rows) for action in row}
    everything = cut(model, line.depth)
    stages = {number: stage for number, stage in enumerate(everything) if home[number] == me}
    first, last = home[0], home[line.depth - 1]
    tied = model.unembed is None and first != last
    ends = dist.new_group([first, last]) if tied else None  # all ranks call
    module = held_here(stages)
    twin = model.tokens.weight if model.unembed is None else None
    counted = [p for p in module.parameters() if not (tied and me == last and p is twin)]  # it counts on the first rank
    stepper = Whole(adam.of(module), counted, [_world()])
    return Pipelined(
        stages, line.rows, line.depth, line.like, line.loss_of, stepper, ends if me in (first, last) else None, twin
    )


def by_torch(module: nn.Module, layout: Layout, groups: Groups, adam: Adam, device: torch.device) -> Replica:
    """The same by torch's own."""
    from kit.topics.gpt.reference import built_in  # loads what takes seconds, for those who ask for it

    assert groups.rows is not None and groups.dp is not None, "checked before"
    if layout.data == "ddp":
        return built_in.averaged(module, groups.dp, adam, device)
    if layout.data == "zero1":
        return built_in.optimizer_sharded(module, groups.dp, adam, device)
    return built_in.fully_sharded(module, groups.rows["dp"], adam, device, keep_weights=layout.data == "zero2")


def check(layout: Layout, extras: Extras) -> None:
    """Raises ValueError for what cannot be had together."""
    if layout.data in ZERO and layout.dp == 1:
        raise ValueError(f"{layout.data} shares out a model over ranks with different data, and here is one: add ranks")
    if layout.pp > 1 and layout.dp * layout.tp > 1:
        raise ValueError(f"{layout}: a pipeline is all ranks there are for now; choose pp alone, or leave it out")
    if extras.built_in and (layout.dp == 1 or layout.tp * layout.pp > 1):
        raise ValueError(f"torch's own is here for ddp, zero1, zero2 and zero3, not for {layout}: leave the switch out")
    if extras.compile and (layout.data not in ("single", "ddp") or layout.tp * layout.pp > 1):
        raise ValueError(f"compiled models are tried with single and ddp, not with {layout}: leave compile out")
    if extras.recompute and layout.tp * layout.pp > 1:
        raise ValueError(f"recomputation is tried with data parallel strategies, not with {layout}: leave it out")


def _there(*groups: Group | None) -> list[Group]:
    return [group for group in groups if group is not None]


def _world() -> Group:
    world = dist.group.WORLD
    assert world is not None, "a pipeline runs on ranks"
    return world
