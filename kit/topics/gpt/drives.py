"""How lab 10's functions are used on a rank, and what is noted while they are: loaded on the ranks alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def gradients(
    function: Callable[..., Any], weight: torch.Tensor, batches: Sequence[tuple[torch.Tensor, torch.Tensor]]
) -> Any:
    """Returns what is left in the gradient of a weight (C,)."""
    leaf = weight.clone().requires_grad_()
    function(leaf, [(x.clone(), y.clone()) for x, y in batches])
    return leaf.grad


def resumed(
    function: Callable[..., Any], whole: torch.Tensor, old: int, rank: int, ranks: int, seen: dict[str, Any]
) -> Any:
    """Hands out shards of a vector (P,) that `old` ranks have saved, and notes which were read."""
    shards = torch.cat([whole, whole.new_zeros(-len(whole) % old)]).view(old, -1)  # (old, ceil(P/old))
    seen["read"] = []

    def read(k: int) -> torch.Tensor:
        if not 0 <= k < old:
            raise ValueError(f"there is no shard {k}: the checkpoint has the shards 0 to {old - 1}")
        seen["read"].append(k)
        return shards[k].clone()

    return function(read, len(whole), old, rank, ranks)
