"""Flat buffers: parameters and gradients end to end in one tensor, cut into one equal shard per rank.

Letters: P elements of a flat buffer, padding included; n ranks of the group, r this one. A shard has P/n elements.
Fewer than n zeros stand at the end (`by_hand.flatten`); no parameter ever sees them.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch.nn import Parameter

from kit.topics.data_parallel.reference.built_in import Group
from kit.topics.zero.reference.by_hand import all_gather, flatten, spans, unflatten

Names = dict[Parameter, str]

# The shapes stand in one column.
# fmt: off


# ------------------------------------------------------------------------------------------------------------- weights


class FlatParameter:
    """Parameters of one dtype in one buffer, all of which is on every rank; each rank steps its shard.

    full (n, P/n): the weights; the parameters are views of it. shard (P/n,): row r of it. unrounded (P/n,): the shard
    before it was rounded to `dtype`; None where nothing was. The ranks begin with the values of the group's rank 0.
    """

    def __init__(self, names: Names, group: Group = None, dtype: torch.dtype | None = None) -> None:
        self.params, self.names = list(names), list(names.values())
        self.group, self.rank, self.n = group, dist.get_rank(group), dist.get_world_size(group)
        self.shapes = [p.shape for p in self.params]
        exact = flatten(self.params, self.n)                       # (n, P/n)
        dist.broadcast(exact, group=group, group_src=0)
        self.full = exact.to(dtype or exact.dtype)                 # (n, P/n)
        self.shard = self.full[self.rank]                          # (P/n,)
        self.unrounded = None if exact.dtype == self.full.dtype else exact[self.rank].clone()  # (P/n,)
        self.views = unflatten(self.full, self.shapes)
        self.point_parameters_at(self.views)

    def point_parameters_at(self, tensors: Iterable[torch.Tensor]) -> None:
        """Let each parameter have the memory of its tensor, which has its shape."""
        for p, tensor in zip(self.params, tensors, strict=True):
            p.data = tensor

    def pieces(self) -> list[tuple[Parameter, slice]]:
        """The parameters that reach into this rank's shard, each with the piece of the shard that is its own."""
        size = len(self.shard)
        first = self.rank * size
        within = [slice(max(at.start - first, 0), min(at.stop - first, size)) for at in spans(self.shapes)]
        return [(p, at) for p, at in zip(self.params, within, strict=True) if at.start < at.stop]


class FlatShardedParameter(FlatParameter):
    """Parameters of one dtype of which each rank keeps its shard; full (n, P/n) has memory while it is gathered.

    Autograd remembers views of `full` for the backward pass. They show the weights again once these are gathered
    again, because it is the same tensor that gets memory back. In between a parameter keeps its shape, has no memory,
    and reads as NaN.
    """

    def __init__(self, names: Names, group: Group = None, dtype: torch.dtype | None = None) -> None:
        super().__init__(names, group, dtype)
        self.shard = self.shard.clone()                            # (P/n,)
        self.nbytes = self.full.untyped_storage().nbytes()
        nothing = self.shard.new_tensor(float("nan") if self.shard.is_floating_point() else 0)  # ()
        self.absent = [nothing.expand(shape) for shape in self.shapes]
        self.gathering: dist.Work | None = None
        self.gathered = True
        self.free()

    def prefetch(self) -> None:
        """Begin to gather the weights, unless they are here or on their way."""
        if not self.gathered and self.gathering is None:
            self.full.untyped_storage().resize_(self.nbytes)
            self.gathering = all_gather(self.full, self.shard, self.group)  # (n, P/n)

    def gather(self) -> None:
        """Have the weights here, behind their parameters."""
        self.prefetch()
        if self.gathering is not None:
            self.gathering.wait()
            self.gathering, self.gathered = None, True
            self.point_parameters_at(self.views)

    def free(self) -> None:
        """Give their memory back; the shard stays."""
        if self.gathering is not None:
            self.gathering.wait()
        self.gathering, self.gathered = None, False
        self.point_parameters_at(self.absent)
        self.full.untyped_storage().resize_(0)


# ----------------------------------------------------------------------------------------------------------- gradients


class Gradients:
    """The gradients of a flat parameter from backward to step: autograd leaves them in `p.grad`, ranks sum them.

    shard (P/n,): this rank's part of their sum over ranks and micro-batches. summed: the parameters that are in it.
    """

    def __init__(self, flat: FlatParameter) -> None:
        self.flat = flat
        self.shard: torch.Tensor | None = None                     # (P/n,)
        self.summed: set[Parameter] = set()

    def arrived(self, p: Parameter) -> None:
        """Autograd has left a gradient in `p.grad`."""

    def pack(self) -> tuple[torch.Tensor, torch.Tensor]:
        """What the ranks are to sum (n, P/n), zeros where there is no gradient, and room for this rank's row (P/n,)."""
        raise NotImplementedError

    def keep(self, shard: torch.Tensor) -> None:
        """This rank's row of the sum (P/n,) is there."""
        raise NotImplementedError

    def clear(self) -> None:
        """Forget all gradients."""
        self.summed.clear()
        for p in self.flat.params:
            p.grad = None

    def tensors(self) -> list[torch.Tensor]:
        """All that takes up memory."""
        return [p.grad for p in self.flat.params if p.grad is not None]


class FullGradients(Gradients):
    """Stage 1: all gradients stay, in a buffer (n, P/n) of which every `p.grad` is a view.

    After a sum row r is this rank's shard of it, and the other rows are zero, since other ranks have those sums now. So
    what the next micro-batch adds can be summed in the same way.
    """

    def __init__(self, flat: FlatParameter) -> None:
        super().__init__(flat)
        self.buffer = torch.zeros_like(flat.full)                  # (n, P/n)
        self.shard = self.buffer[flat.rank]                        # (P/n,)
        self.views = dict(zip(flat.params, unflatten(self.buffer, flat.shapes), strict=True))

    def arrived(self, p: Parameter) -> None:
        """Let the gradient live in the buffer, where autograd adds the next one to it."""
        view = self.views[p]
        if p.grad is not None and p.grad is not view:
            view.copy_(p.grad)                                     # shape of p
            p.grad = view

    def pack(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The buffer (n, P/n), summed in place into its own row r (P/n,)."""
        for p, view in self.views.items():
            if p.grad is None:
                view.zero_()                                       # shape of p
            else:
                self.arrived(p)
                self.summed.add(p)
        return self.buffer, self.buffer[self.flat.rank]

    def keep(self, shard: torch.Tensor) -> None:
        """The row r is the sum; the others are other ranks' now."""
        self.buffer[: self.flat.rank] = 0                          # (r, P/n)
        self.buffer[self.flat.rank + 1 :] = 0                      # (n-1-r, P/n)

    def tensors(self) -> list[torch.Tensor]:
        """The buffer, whether or not there are gradients in it."""
        return [self.buffer, *super().tensors()]


class ShardedGradients(Gradients):
    """Stages 2 and 3: a full gradient goes as soon as it is packed, and this rank's shard of the sums is kept."""

    def pack(self) -> tuple[torch.Tensor, torch.Tensor]:
        """A new buffer (n, P/n) in place of every `p.grad`, and another (P/n,)."""
        params = self.flat.params
        self.summed |= {p for p in params if p.grad is not None}
        full = flatten([torch.zeros_like(p) if p.grad is None else p.grad for p in params], self.flat.n)  # (n, P/n)
        for p in params:
            p.grad = None
        return full, torch.empty_like(full[0])

    def keep(self, shard: torch.Tensor) -> None:
        """The first sum, or one to add to those of the micro-batches before."""
        self.shard = shard if self.shard is None else self.shard.add_(shard)  # (P/n,)

    def clear(self) -> None:
        """Forget all gradients, and give the shard's memory back."""
        super().clear()
        self.shard = None

    def tensors(self) -> list[torch.Tensor]:
        """The shard, and gradients that are not summed yet."""
        return [*super().tensors(), *([] if self.shard is None else [self.shard])]


# fmt: on
