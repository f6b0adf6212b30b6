"""Solutions of lab 00, My topic: one function per exercise."""

import torch.distributed as dist


def mean_over_ranks(x, group=None):
    """The mean of x over the group. x (C,); returns a new tensor (C,)."""
    total = x.clone()  # (C,)
    dist.all_reduce(total, group=group)
    return total / dist.get_world_size(group)  # (C,)
