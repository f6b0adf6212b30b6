"""Counts what a process hands to torch's send and receive, without a trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist


@contextmanager
def counting(counts: Counter[str]) -> Iterator[None]:
    """Count what this process hands to torch's send and receive, all four ways in."""
    inner = dist.distributed_c10d
    kept = {name: getattr(inner, name) for name in ("send", "isend", "recv", "irecv")}
    depth = [0]  # recv calls irecv, send calls isend: count the outer call

    def counted(name: str) -> Callable[..., Any]:
        direction = "sent" if "send" in name else "received"

        def call(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if depth[0] == 0:
                counts[direction] += 1
                counts[f"bytes_{direction}"] += tensor.numel() * tensor.element_size()
            depth[0] += 1
            try:
                return kept[name](tensor, *args, **kwargs)
            finally:
                depth[0] -= 1

        return call

    def install(functions: dict[str, Callable[..., Any]]) -> None:
        for name, function in functions.items():
            setattr(inner, name, function)
            setattr(dist, name, function)

    install({name: counted(name) for name in kept})
    try:
        yield
    finally:
        install(kept)
