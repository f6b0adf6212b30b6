"""Buckets: gradients side by side in flat buffers, so that a few large messages go where many small ones went.

Li and others, PyTorch distributed: experiences on accelerating data parallel training (2020), section 3.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.nn import Parameter


def assign(parameters: Sequence[Parameter], bucket_bytes: int, first_bytes: int) -> list[list[Parameter]]:
    """Which parameters share a bucket: the last ones first, since backward reaches them first.

    A bucket holds `bucket_bytes` at most, the first one `first_bytes` (a small one starts the messages early); only a
    parameter that is larger alone has a larger one to itself. One dtype and one device to a bucket. Depends on nothing
    but the parameters' order and sizes, so every rank finds the same. Raises ValueError for sizes below 1.
    """
    check_sizes(bucket_bytes, first_bytes)
    buckets: list[list[Parameter]] = []
    filling: dict[tuple[torch.dtype, torch.device], list[Parameter]] = {}
    for p in reversed(parameters):
        bucket = filling.get((p.dtype, p.device))
        limit = first_bytes if bucket is None or bucket is buckets[0] else bucket_bytes
        if bucket is None or bytes_of(bucket) + bytes_of([p]) > limit:
            bucket = filling[(p.dtype, p.device)] = []
            buckets.append(bucket)
        bucket.append(p)
    return buckets


def check_sizes(*sizes: Any) -> None:
    """Raises ValueError unless each is a number of bytes, 1 or more."""
    for size in sizes:
        if not isinstance(size, int | float) or not size >= 1:  # NaN fails this too
            raise ValueError(f"a bucket of {size!r} bytes holds nothing: give 1 or more")


def bytes_of(parameters: Iterable[torch.Tensor]) -> int:
    """Bytes that the tensors hold together."""
    return sum(p.numel() * p.element_size() for p in parameters)


class Bucket:
    """A flat buffer for the gradients of some parameters (of one dtype, on one device): S elements.

    `flat` is what is sent; `views[p]` is p's part of it, shaped like p, and becomes `p.grad`: what arrives in `flat`
    is in the gradients at once. `missing` counts the gradients that this backward pass still owes.
    """

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        sizes = [p.numel() for p in parameters]
        like = parameters[0]
        self.flat = torch.zeros(sum(sizes), dtype=like.dtype, device=like.device)  # (S,)
        parts = self.flat.split(sizes)  # one (p.numel(),) for each p
        self.views = {p: part.view(p.shape) for p, part in zip(parameters, parts, strict=True)}
        self.missing = len(parameters)

    def take(self, p: Parameter, n: int) -> None:
        """Copy p's gradient, divided by n, to its place, and let `p.grad` live there from now on."""
        assert p.grad is not None
        torch.div(p.grad, n, out=self.views[p])  # shape of p
        p.grad = self.views[p]
        self.missing -= 1

    def empty(self) -> None:
        """Wait for all gradients again. What is in the buffer stays: it is the gradients."""
        self.missing = len(self.views)
