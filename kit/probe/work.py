"""What every Work that this probe hands out has in common."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist


class OwnWork(dist.Work):
    """Who misspells `wait` reads what torch would say, 'Work' object has no attribute, and no name of ours."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__name__ = dist.Work.__name__
