"""Data parallel training: every rank has the whole model and its own part of the batch, and gradients are averaged.

Three wrappers with one face, that of torch's DistributedDataParallel: `model(x)`, a plain `loss.backward()`, after
which every `.grad` is the mean over the ranks, and `with model.no_sync():` for micro-batches whose gradients stay
local. `AveragedAfterBackward` sends when backward is over, `HookedDDP` each gradient as soon as it is there, and
`BucketedDDP` full buckets of them, while backward goes on. What they share is in `kit.parallel.replica`.

Letters: n the ranks of the group, K the parameters that are trained, each counted once however many modules share it.
`group=None` is the world. The mean gives every rank the same weight: with a loss that is a mean over B samples, it is
the gradient of the whole batch of n B only where B is the same on every rank. What each rank sends is in
`kit.parallel.traffic`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import Parameter

from kit.parallel.buckets import Bucket, assign, check_sizes
from kit.parallel.built_in import (
    AllReduce,
    Group,
    Handle,
    Launch,
    built_in_all_reduce,
    launch_all_reduce,
)
from kit.parallel.replica import Replica, broadcast_state, trained

__all__ = ["AveragedAfterBackward", "BucketedDDP", "HookedDDP", "average_gradients", "broadcast_state", "trained"]

MIB = 2**20


def average_gradients(module: nn.Module, group: Group = None, all_reduce: AllReduce = built_in_all_reduce) -> None:
    """Replace every gradient by its mean over the group: call it after backward. K all-reduces, one after the other.

    A rank on which a parameter has no gradient adds zeros, because the others wait for it.
    """
    n = dist.get_world_size(group)
    for p in trained(module):
        gradient = torch.zeros_like(p) if p.grad is None else p.grad  # shape of p
        p.grad = all_reduce(gradient / n, group)  # shape of p


class AveragedAfterBackward(Replica):
    """`average_gradients` at the end of every backward pass: right, and while it sends nothing is computed.

    all_reduce: sums a tensor over the group. The other arguments are those of `Replica`.
    """

    sends_early = False

    def __init__(
        self, module: nn.Module, group: Group = None, *, all_reduce: AllReduce = built_in_all_reduce, **options: Any
    ) -> None:
        super().__init__(module, group, **options)
        self.all_reduce = all_reduce

    def gradient_ready(self, p: Parameter) -> None:
        """Nothing is done before all are ready."""

    def finish(self) -> None:
        """Average one gradient after the other."""
        average_gradients(self.module, self.group, self.all_reduce)


class HookedDDP(Replica):
    """An all-reduce for each gradient, begun as soon as it is there: messages travel while backward goes on.

    They begin in one order on every rank, the last parameter's first, whatever order autograd has on a rank: a rank
    that called in another order would add one gradient to another. Sent are K messages, most of them small.

    launch: begins to sum a tensor over the group, in place. The other arguments are those of `Replica`.
    """

    def __init__(
        self, module: nn.Module, group: Group = None, *, launch: Launch = launch_all_reduce, **options: Any
    ) -> None:
        super().__init__(module, group, **options)
        self.launch = launch
        self.order = list(reversed(self.names))
        self.under_way: list[Handle] = []

    def gradient_ready(self, p: Parameter) -> None:
        """Begin the all-reduces whose turn it is."""
        while len(self.under_way) < len(self.order):
            p = self.order[len(self.under_way)]
            if p not in self.arrived:
                return
            assert p.grad is not None
            p.grad = p.grad.contiguous()  # shape of p
            p.grad /= self.n  # before the sum, which might overflow in half precision
            self.under_way.append(self.launch(p.grad, self.group))

    def finish(self) -> None:
        """Wait until everything has been summed."""
        for handle in self.under_way:
            handle.wait()

    def forget(self) -> None:
        """Nothing is under way any more."""
        self.under_way.clear()


class BucketedDDP(Replica):
    """An all-reduce for each bucket of gradients, begun when its last gradient is there: torch's own way.

    Few large messages, which travel while backward goes on. Buckets are full in whatever order autograd has; they are
    sent in one order on every rank. Gradients live in the buckets: no copy back.

    bucket_bytes, first_bucket_bytes: how much of the gradients goes into one all-reduce (torch's sizes). launch: begins
    to sum a flat tensor over the group, in place. The other arguments are those of `Replica`.
    """

    def __init__(
        self,
        module: nn.Module,
        group: Group = None,
        *,
        bucket_bytes: int = 25 * MIB,
        first_bucket_bytes: int = MIB,
        launch: Launch = launch_all_reduce,
        **options: Any,
    ) -> None:
        super().__init__(module, group, **options)
        self.launch = launch
        check_sizes(bucket_bytes, first_bucket_bytes)
        self._fill(assign(list(self.names), bucket_bytes, min(first_bucket_bytes, bucket_bytes)))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Of a tensor and its views pickle makes tensors that share nothing: a copy has buckets of its own."""
        super().__setstate__(state)
        self._fill([list(bucket.views) for bucket in self.buckets])

    def _fill(self, assigned: list[list[Parameter]]) -> None:
        self.buckets = [Bucket(parameters) for parameters in assigned]
        self.bucket_of = {p: bucket for bucket in self.buckets for p in bucket.views}
        self.under_way: list[Handle] = []

    def gradient_ready(self, p: Parameter) -> None:
        """Put the gradient into its bucket, and send the buckets whose turn it is."""
        self.bucket_of[p].take(p, self.n)
        while len(self.under_way) < len(self.buckets):
            bucket = self.buckets[len(self.under_way)]
            if bucket.missing:
                return
            self.under_way.append(self.launch(bucket.flat, self.group))

    def finish(self) -> None:
        """Wait until every bucket has been summed."""
        for handle in self.under_way:
            handle.wait()

    def forget(self) -> None:
        """All buckets wait for gradients again."""
        self.under_way.clear()
        for bucket in self.buckets:
            bucket.empty()
