"""Three wrappers with the interface of torch's DistributedDataParallel, each sending earlier than the one before.

`model(x)`, a plain `loss.backward()`, after which every `.grad` is the mean over the ranks, and `with model.no_sync():`
for micro-batches whose gradients stay local. `AveragedAfterBackward` sends when backward is over, `HookedDDP` each
gradient as soon as it is there, and `BucketedDDP` full buckets of them, while backward goes on. Autograd reaches the
last layers first, so their gradients travel while the first layers are still computed.

Whatever order autograd has on a rank, all-reduces begin in one order on every rank: a rank that called in another order
would add one gradient to another.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn import Parameter

from kit.topics.data_parallel.reference.buckets import Bucket, assign, check_sizes
from kit.topics.data_parallel.reference.built_in import (
    AllReduce,
    Group,
    Handle,
    Launch,
    built_in_all_reduce,
    launch_all_reduce,
)
from kit.topics.data_parallel.reference.by_hand import average_gradients
from kit.topics.data_parallel.reference.replica import Replica

MIB = 2**20


class AveragedAfterBackward(Replica):
    """`average_gradients` at the end of every backward pass: right, and while it sends nothing is computed.

    all_reduce: sums a tensor over the group. The other arguments are those of `Replica`.
    """

    def __init__(
        self, module: nn.Module, group: Group = None, *, all_reduce: AllReduce = built_in_all_reduce, **options: Any
    ) -> None:
        super().__init__(module, group, **options)
        self.all_reduce = all_reduce

    def finish(self) -> None:
        """Average one gradient after the other."""
        average_gradients(self.module, self.group, self.all_reduce)


class SendsEarly(Replica):
    """What the two wrappers below share: all-reduces that are under way while backward goes on.

    launch: begins to sum a tensor over the group, in place. The other arguments are those of `Replica`.
    """

    sends_early = True

    def __init__(
        self, module: nn.Module, group: Group = None, *, launch: Launch = launch_all_reduce, **options: Any
    ) -> None:
        super().__init__(module, group, **options)
        self.launch = launch
        self.under_way: list[Handle] = []

    def finish(self) -> None:
        """Wait until everything has been summed."""
        for handle in self.under_way:
            handle.wait()

    def forget(self) -> None:
        """Nothing is under way any more."""
        self.under_way.clear()


class HookedDDP(SendsEarly):
    """An all-reduce for each gradient, begun as soon as it is there, the last parameter's first: K, most of them small.

    The arguments are those of `SendsEarly`.
    """

    def __init__(self, module: nn.Module, group: Group = None, **options: Any) -> None:
        super().__init__(module, group, **options)
        self.order = list(reversed(self.names))

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


class BucketedDDP(SendsEarly):
    """An all-reduce for each bucket of gradients, begun when its last gradient is there: torch's own way.

    Few large messages. Buckets are full in whatever order autograd has, and sent from the last parameters to the first.
    Gradients live in the buckets: nothing is copied back.

    bucket_bytes, first_bucket_bytes: how much of the gradients goes into one all-reduce, at most (torch's sizes). The
    other arguments are those of `SendsEarly`. Raises ValueError for sizes below 1.
    """

    def __init__(
        self,
        module: nn.Module,
        group: Group = None,
        *,
        bucket_bytes: int = 25 * MIB,
        first_bucket_bytes: int = MIB,
        **options: Any,
    ) -> None:
        check_sizes(bucket_bytes, first_bucket_bytes)
        super().__init__(module, group, **options)
        self._fill(assign(list(self.names), bucket_bytes, min(first_bucket_bytes, bucket_bytes)))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Of a tensor and its views pickle makes tensors that share nothing: a copy has buckets of its own."""
        super().__setstate__(state)
        self._fill([list(bucket.views) for bucket in self.buckets])

    def gradient_ready(self, p: Parameter) -> None:
        """Put the gradient into its bucket, and send the buckets whose turn it is."""
        self.bucket_of[p].take(p, self.n)
        while len(self.under_way) < len(self.buckets):
            bucket = self.buckets[len(self.under_way)]
            if bucket.missing:
                return
            self.under_way.append(self.launch(bucket.flat, self.group))

    def forget(self) -> None:
        """All buckets wait for gradients again."""
        super().forget()
        for bucket in self.buckets:
            bucket.empty()

    def _fill(self, assigned: list[list[Parameter]]) -> None:
        self.buckets = [Bucket(parameters) for parameters in assigned]
        self.bucket_of = {p: bucket for bucket in self.buckets for p in bucket.views}
