"""ZeRO, stages 1 and 2: every rank has all weights, but only its share of the optimizer (and of the gradients).

Rajbhandari, Rasley, Ruwase and He, ZeRO: memory optimizations toward training trillion parameter models (2020). To be
read after `kit.parallel.zero_by_hand`, which has no hooks; stage 3 is `kit.parallel.zero3`, and all have the face of
`kit.parallel.sharded.Sharded`. Letters: P parameters, n ranks, m micro-batches. What a rank holds, buckets and gathered
layers aside, and sends; the formulas are in `kit.cost.memory` and `kit.cost.training`:

    stage   bytes, mixed    bytes, fp32    elements in a step, times (n-1)/n
    1       4P + 12P/n      8P + 8P/n      2P     if all micro-batches but the last are in no_sync
    2       2P + 14P/n      4P + 12P/n     (m + 1)P
    3       16P/n           16P/n          3mP    less where the last layer is kept
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakMethod

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import Parameter

from kit.parallel.buckets import assign, check_sizes
from kit.parallel.flat import Flat, Group, all_gather
from kit.parallel.gradients import MakeGradients, ShareGradients, WholeGradients
from kit.parallel.refusals import twice
from kit.parallel.sharded import Part, Sharded

MIB = 2**20


class ZeroStage1(Sharded):
    """The optimizer is sharded: a reduce-scatter of the gradients, a step of one share, an all-gather of the weights.

    Together they send what an all-reduce sends. Buckets of gradients are summed while backward goes on, in one order on
    every rank, the last parameters first, whatever order autograd has there; and a bucket of weights is gathered while
    the next one is stepped.

    bucket_bytes: of weights, and so of gradients, in one bucket, at most; the first has 1 MiB at most, because nothing
    travels before it is full. The other arguments are those of `Sharded`.
    """

    keep_gradients: MakeGradients = WholeGradients

    def __init__(self, module: nn.Module, group: Group = None, *, bucket_bytes: int = 25 * MIB, **options: Any) -> None:
        check_sizes(bucket_bytes)
        super().__init__(module, group, **options)
        for params in assign([p for p in self.names if p.requires_grad], bucket_bytes, min(bucket_bytes, MIB)):
            flat = Flat({p: self.names[p] for p in params}, group, self.dtype)
            part = self.make_part(flat, type(self).keep_gradients)
            for number, p in enumerate(params):
                p.register_post_accumulate_grad_hook(_weakly(self._arrived, part, number))
        self.frozen = [p for p in self.names if not p.requires_grad]
        for p in self.frozen:
            dist.broadcast(p.data, group=group, group_src=0)
            p.data = p.data.to(self.dtype) if self.dtype is not None and p.is_floating_point() else p.data
        self._gathering: list[dist.Work] = []
        self.forget_backward()

    def _arrived(self, part: Part, number: int) -> None:
        """A gradient is in `p.grad`: begin the sums whose turn it is."""
        self.in_backward()
        if self._wanted and number not in self._missing[part]:
            raise twice(part.flat.names[number])
        part.gradients.arrived(number)
        self._missing[part].discard(number)
        while self._wanted and self._to_sum and not self._missing[self._to_sum[0]]:
            self.begin_sum(self._to_sum.pop(0))

    def end_of_backward(self) -> None:
        """Sum the parts of which parameters were not used, and wait."""
        for part in self._to_sum if self._wanted else []:
            self.begin_sum(part)
        self.end_sum()

    def forget_backward(self) -> None:
        """The next backward pass begins with everything still to come."""
        super().forget_backward()
        self._to_sum = list(self.parts)
        self._missing = {part: set(range(len(part.flat.params))) for part in self.parts}

    def stepped(self, part: Part) -> None:
        """Begin to gather what the others have stepped."""
        self._gathering.append(all_gather(part.flat.whole, part.flat.share, self.group))

    def all_stepped(self) -> None:
        """Wait for it."""
        for work in self._gathering:
            work.wait()
        self._gathering.clear()

    def weights(self) -> list[torch.Tensor]:
        """All of them."""
        return [*(part.flat.whole for part in self.parts), *self.frozen]


class ZeroStage2(ZeroStage1):
    """The optimizer and the gradients are sharded: whole gradients are gone as soon as their bucket has been summed.

    So every micro-batch is summed; inside no_sync they stay whole, and fewer are sent.
    """

    keep_gradients: MakeGradients = ShareGradients


def _weakly(method: Callable[..., None], *given: Any) -> Callable[[Parameter], None]:
    """The method as a hook that does not keep its object alive: the garbage collector cannot see through a hook."""
    weak = WeakMethod(method)

    def hook(p: Parameter) -> None:
        alive = weak()
        if alive is not None:
            alive(*given)

    return hook
