"""A manager of process groups that lies in its module for all to use."""

from __future__ import annotations

from typing import cast

import torch.distributed as dist

process_group_manager: Manager = cast("Manager", None)


class Manager:
    def __init__(self, tensor: int) -> None:
        rank, world = dist.get_rank(), dist.get_world_size()
        grid = [list(range(first, first + tensor)) for first in range(0, world, tensor)]
        self.groups = [dist.new_group(members) for members in grid]
        self.tensor_group = self.groups[rank // tensor]
        self.tensor_rank = rank % tensor


def setup_process_group_manager(tensor: int) -> None:
    global process_group_manager
    process_group_manager = Manager(tensor)
