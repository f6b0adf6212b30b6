"""torch's own in the place of ours.

ddp, zero1, zero2, zero3    DistributedDataParallel, ZeroRedundancyOptimizer, FSDP2
tp, tp+sp                   DTensor's parallelize_module
pp                          torch.distributed.pipelining, by the schedules that it has
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, schedules
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from kit.topics.gpt.reference.norm import scale, total_norm
from kit.topics.gpt.reference.replicas import KINDS, Adam, Replica, Whole
from kit.topics.gpt.reference.state import Held
from kit.topics.pipeline.reference.stages import Stage
from kit.topics.tensor.reference.gpt import thirds

Tensor = torch.Tensor
Around = Callable[[], AbstractContextManager[object]]


def averaged(module: nn.Module, group: dist.ProcessGroup, adam: Adam, device: torch.device) -> Replica:
    """DistributedDataParallel."""
    called = DistributedDataParallel(module, process_group=group)
    return Replica(called, module, Whole(adam.of(module), module.parameters()), device, group, quiet=called.no_sync)


def optimizer_sharded(module: nn.Module, group: dist.ProcessGroup, adam: Adam, device: torch.device) -> Replica:
    """DistributedDataParallel, and an optimizer of which each rank steps some parameters and broadcasts them."""
    called = DistributedDataParallel(module, process_group=group)
    optimizer = ZeroRedundancyOptimizer(
        adam.groups(module), torch.optim.AdamW, process_group=group, lr=0.0, betas=adam.betas, eps=adam.eps
    )
    return Replica(called, module, WholeGradients(optimizer, module.parameters()), device, group, quiet=called.no_sync)


def fully_sharded(
    module: nn.Module, mesh: DeviceMesh, adam: Adam, device: torch.device, *, keep_weights: bool
) -> Replica:
    """FSDP2, layer by layer. keep_weights: between forward and backward, as ZeRO's stage 2 does."""
    for block in module.blocks:  # type: ignore[union-attr]
        fully_shard(block, mesh=mesh, reshard_after_forward=not keep_weights)
    sharded: Any = fully_shard(module, mesh=mesh, reshard_after_forward=not keep_weights)
    group = mesh.get_group()
    return Replica(sharded, module, DTensors(adam.of(module), sharded.parameters(), [group]), device, group)


class WholeGradients(Whole):
    """All gradients on every rank; the moments lie where torch's optimizer wants them, and are not told."""

    def held(self) -> dict[nn.Parameter, Held]:
        raise ValueError(
            "torch's ZeroRedundancyOptimizer tells no moments of other ranks: save with our zero1, or zero2"
        )


class DTensors(Whole):
    """AdamW on DTensors, each in shards or the same on all ranks; and on tensors that all ranks hold alike."""

    def gradients(self) -> list[Tensor]:
        return [_settled(p) for p in self.held_here]

    def clip(self, norm: float) -> float:
        """What all ranks hold alike counts on the first of them."""
        first = all(dist.get_rank(group) == 0 for group in self.groups)
        here = [(_settled(p), _in_shards(p)) for p in self.held_here]
        found = total_norm([x for x, parted in here if parted or first], self.groups, here[0][0].device)
        scale([x for x, _ in here], found, norm)
        return found

    def held(self) -> dict[nn.Parameter, Held]:
        return {p: {kind: _whole(x) for kind, x in held.items()} for p, held in super().held().items()}

    @torch.no_grad()
    def hold(self, what: Mapping[nn.Parameter, Held], steps: int) -> None:
        super().hold({p: {kind: _like(p, held[kind]) for kind in KINDS} for p, held in what.items()}, steps)


def _settled(p: nn.Parameter) -> Tensor:
    """What this rank holds of a gradient, of which ranks may have had terms so far."""
    gradient = p.grad
    assert gradient is not None, "after backward"
    if not (isinstance(p, DTensor) and isinstance(gradient, DTensor)):
        return gradient
    p.grad = settled = gradient.redistribute(placements=p.placements)
    return settled.to_local()


def _in_shards(p: Tensor) -> bool:
    return isinstance(p, DTensor) and any(placement.is_shard() for placement in p.placements)


def _whole(x: Tensor) -> Tensor:
    return x.full_tensor() if isinstance(x, DTensor) else x


def _like(p: Tensor, x: Tensor) -> Tensor:
    return distribute_tensor(x, p.device_mesh, p.placements) if isinstance(p, DTensor) else x


# ------------------------------------------------------------------------------------------------- tensor parallel


def tensor_parallel(
    model: Any, mesh: DeviceMesh, adam: Adam, device: torch.device, *, sequence: bool, attending: Around = nullcontext
) -> Replica:
    """DTensor: layers stay as they are, and a plan says how each one's weights, inputs and outputs lie on the ranks.

    sequence: outside attention and MLP each rank has T/n positions. attending: as a Replica has it.
    """
    tied = model.unembed is None
    for block in model.blocks:
        block.attention = AttentionOfThirds(block.attention)
    if tied:
        V, C = model.tokens.weight.shape
        model.unembed = nn.Linear(C, V, bias=False, device="meta")
        model.unembed.weight = nn.Parameter(model.tokens.weight.detach())
    model.head = lambda x: model.unembed(model.norm(x))  # (B, T, C) -> (B, T, V): a module of its own has a plan
    parallelize_module(model, mesh, plan(len(model.blocks), sequence))
    if tied:
        model.unembed.weight = model.tokens.weight  # both are cut by tokens
    group = mesh.get_group()
    optimizer = adam.of_groups([part for one in adam.groups(model) for part in _by_kind(one)])
    replica = Replica(partial(_called, model), model, DTensors(optimizer, model.parameters(), [group]), device, None)
    replica.attending = _both(attending, loss_parallel)  # logits stay in shards by tokens, in the backward pass too
    return replica


def plan(blocks: int, sequence: bool) -> dict[str, ParallelStyle]:
    """By the names of a GPT's modules. What is not named stays whole on every rank."""
    outside = Shard(1) if sequence else Replicate()  # of x (B, T, C), between attention and MLP
    enter = PrepareModuleInput(input_layouts=outside, desired_input_layouts=Replicate())
    said: dict[str, ParallelStyle] = {
        "tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=outside),
        "unembed": ColwiseParallel(input_layouts=outside, use_local_output=False),
    }
    for number in range(blocks):
        layers: dict[str, ParallelStyle] = {
            "attention": enter,
            **dict.fromkeys(("attention.q", "attention.k", "attention.v"), ColwiseParallel()),
            "attention.out": RowwiseParallel(output_layouts=outside),
            "mlp": enter,
            "mlp.up": ColwiseParallel(),
            "mlp.down": RowwiseParallel(output_layouts=outside),
        }
        if sequence:
            layers |= dict.fromkeys(("norm_1", "norm_2"), SequenceParallel(use_local_output=True))
        said |= {f"blocks.{number}.{name}": style for name, style in layers.items()}
    if sequence:
        said["norm"] = SequenceParallel(use_local_output=True)
        said["positions"] = PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(0))  # (T, C)
    return said


class AttentionOfThirds(nn.Module):
    """A GPT's attention with q, k and v as three layers, each of which can be cut by heads. (B, T, C) -> (B, T, C)."""

    def __init__(self, old: Any) -> None:
        super().__init__()
        self.q, self.k, self.v = thirds(old.qkv)
        self.out, self.D = old.out, old.qkv.in_features // old.n_head

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (y(x).unflatten(-1, (-1, self.D)).transpose(1, 2) for y in (self.q, self.k, self.v))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, H/n, T, D)
        y: Tensor = self.out(heads.transpose(1, 2).flatten(2))
        return y


def _both(first: Around, second: Around) -> Around:
    @contextmanager
    def around() -> Iterator[None]:
        with first(), second():
            yield

    return around


def _called(model: nn.Module, tokens: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (B, T, V) as a DTensor, and the loss () as a tensor that every rank has."""
    logits, loss = model(tokens, targets)
    return logits, loss.to_local()


def _by_kind(group: dict[str, Any]) -> list[dict[str, Any]]:
    """A parameter group in two: a kernel takes DTensors or plain tensors, not both."""
    kinds = [[p for p in group["params"] if isinstance(p, DTensor) == one] for one in (True, False)]
    return [{**group, "params": params} for params in kinds if params]


# -------------------------------------------------------------------------------------------------------- pipeline


class TorchPipeline:
    """Stages of `depth` on this rank by torch's runtime and its schedule of that name, for m micro-batches.

    Raises ValueError for a schedule that torch does not have.
    """

    def __init__(
        self, schedule: str, stages: Mapping[int, Stage], depth: int, m: int, loss_of: Any, group: Any, like: Tensor
    ) -> None:
        known = {name.removeprefix("Schedule"): kind for name, kind in vars(schedules).items() if _is_schedule(name)}
        if schedule not in known:
            raise ValueError(
                f"torch has no schedule {schedule!r}: choose one of its {', '.join(known)}, or leave built_in out"
            )
        made = [PipelineStage(one, number, depth, like.device, group=group) for number, one in sorted(stages.items())]
        single = issubclass(known[schedule], schedules.PipelineScheduleSingle)
        # torch would divide the gradients stage by stage by m: those of a matrix that two stages share, twice
        self.schedule = known[schedule](
            made[0] if single else made,
            n_microbatches=m,
            loss_fn=lambda y, target: loss_of(y, target) / m,
            scale_grads=False,
        )
        self.m = m

    def step(self, inputs: Sequence[Tensor], targets: Sequence[Tensor]) -> list[Tensor]:
        """It is given all of the batch (mB, T), and cuts it again."""
        losses: list[Tensor] = []
        self.schedule.step(torch.cat(list(inputs)), target=torch.cat(list(targets)), losses=losses)
        return [loss.detach() * self.m for loss in losses]


def _is_schedule(name: str) -> bool:
    return name.startswith("Schedule")
