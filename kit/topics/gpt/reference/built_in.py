"""torch's own in the place of ours: DistributedDataParallel, ZeroRedundancyOptimizer, FSDP2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from kit.topics.gpt.reference.norm import scale, total_norm
from kit.topics.gpt.reference.replicas import KINDS, Adam, Replica, Whole
from kit.topics.gpt.reference.state import Held

Tensor = torch.Tensor


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
    """AdamW on shards that are DTensors."""

    def clip(self, norm: float) -> float:
        shards = [p.grad.to_local() for p in self.held_here if isinstance(p.grad, DTensor)]
        found = total_norm(shards, self.groups, shards[0].device)
        scale(shards, found, norm)
        return found

    def held(self) -> dict[nn.Parameter, Held]:
        return {
            p: {kind: x.full_tensor() for kind, x in held.items() if isinstance(x, DTensor)}
            for p, held in super().held().items()
        }

    @torch.no_grad()
    def hold(self, what: Mapping[nn.Parameter, Held], steps: int) -> None:
        super().hold({p: {kind: _like(p, held[kind]) for kind in KINDS} for p, held in what.items()}, steps)


def _like(p: Tensor, x: Tensor) -> Tensor:
    assert isinstance(p, DTensor)
    return distribute_tensor(x, p.device_mesh, p.placements)
