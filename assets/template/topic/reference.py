"""The mean over ranks, by hand."""

import torch
import torch.distributed as dist


def mean_over_ranks(x: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """The mean of x over the group. x (C,); returns a new tensor (C,), the same on every rank."""
    total = x.clone()  # (C,)
    dist.all_reduce(total, group=group)
    return total / dist.get_world_size(group)  # (C,)
