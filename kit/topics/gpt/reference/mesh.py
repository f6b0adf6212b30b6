"""The mesh of ranks: with whom a rank shares data, layers, and a pipeline."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from kit.topics.gpt.reference.layout import Layout

Group = dist.ProcessGroup


@dataclass(frozen=True)
class Groups:
    """This rank's rows of the mesh. dp: the ranks that hold the same and compute with different data; tp: that share
    layers; pp: that hold the stages of one pipeline. None: it is alone in that row.
    """

    mesh: DeviceMesh | None = None
    dp: Group | None = None
    tp: Group | None = None
    pp: Group | None = None

    @staticmethod
    def of(layout: Layout, device: torch.device) -> Groups:
        """All ranks call: groups are made."""
        if layout.ranks == 1:
            return Groups()
        mesh = init_device_mesh(device.type, (layout.pp, layout.dp, layout.tp), mesh_dim_names=("pp", "dp", "tp"))
        rows = {name: mesh[name].get_group() for name in ("dp", "tp", "pp") if mesh[name].size() > 1}
        return Groups(mesh, **rows)

    def there(self, *names: str) -> list[Group]:
        """Of these rows those in which this rank is not alone."""
        return [group for name in names if (group := getattr(self, name)) is not None]
