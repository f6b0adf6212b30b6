"""Layers that ask that manager for their group."""

from __future__ import annotations

import torch
import torch.distributed as dist

import tests.ranks.modules.groups as pgm


def summed(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x, group=pgm.process_group_manager.tensor_group)
    return x
