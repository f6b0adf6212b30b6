"""Flat buffers: parameters end to end in one tensor, padded so that it cuts into one equal share per rank.

Letters: P elements of a flat with its padding, n the ranks of the group, r this one; a share is P/n elements. Built-in
collectives want equal shares, so fewer than n zeros stand at the end; no parameter ever sees them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

import torch
import torch.distributed as dist
from torch.nn import Parameter

Group = dist.ProcessGroup | None

# torch 2.13 gave these two shorter names, and warns of the old ones.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

# The shapes stand in one column.
# fmt: off


def flatten(tensors: Sequence[torch.Tensor], n: int) -> torch.Tensor:
    """The elements of tensors (any shapes, one dtype), end to end, then zeros: a new (n, P/n), row r rank r's share."""
    pieces = [x.detach().flatten() for x in tensors]
    count = sum(len(piece) for piece in pieces)
    padding = pieces[0].new_zeros(-count % n)                      # fewer than n
    return torch.cat([*pieces, padding]).view(n, -1)               # (n, P/n)


def unflatten(flat: torch.Tensor, shapes: Iterable[torch.Size]) -> list[torch.Tensor]:
    """Views of flat (n, P/n) with these shapes, end to end; to write to one is to write to flat. No padding."""
    line = flat.view(-1)                                           # (P,)
    return [line[begin:end].view(shape) for shape, (begin, end) in ends(shapes)]


def reduce_scatter(share: torch.Tensor, flat: torch.Tensor, group: Group = None) -> dist.Work:
    """Begin to sum flat (n, P/n) over the group, row r for rank r: after `wait()` it is in share (P/n,).

    Share may be row r of flat itself.
    """
    return _reduce_scatter(share, flat.view(-1), group=group, async_op=True)


def all_gather(flat: torch.Tensor, share: torch.Tensor, group: Group = None) -> dist.Work:
    """Begin to give every rank the shares (P/n,) of all: after `wait()` they are in flat (n, P/n), row r from rank r.

    Share may be row r of flat itself.
    """
    return _all_gather(flat.view(-1), share, group=group, async_op=True)


class Flat:
    """Parameters of one dtype in one buffer, of which this rank owns one share.

    whole (n, P/n): the weights, row r the share of rank r; the parameters are views of it. share (P/n,): this rank's
    row. Making a Flat makes the ranks agree: the values of the group's rank 0 are broadcast. exact (P/n,): this rank's
    share as it was before it was rounded to `dtype`; None where nothing was rounded.
    """

    def __init__(self, names: dict[Parameter, str], group: Group = None, dtype: torch.dtype | None = None) -> None:
        self.params, self.names = list(names), list(names.values())
        self.group, self.rank, self.n = group, dist.get_rank(group), dist.get_world_size(group)
        drawn = flatten(self.params, self.n)                       # (n, P/n)
        dist.broadcast(drawn, group=group, group_src=0)
        self.whole = drawn.to(dtype or drawn.dtype)                # (n, P/n)
        self.share = self.whole[self.rank]                         # (P/n,)
        self.exact = None if drawn.dtype == self.whole.dtype else drawn[self.rank].clone()  # (P/n,)
        self.views = unflatten(self.whole, self.shapes)
        self.let_parameters_be(self.views)

    @property
    def shapes(self) -> list[torch.Size]:
        """The parameters' shapes, in their order here."""
        return [p.shape for p in self.params]

    def let_parameters_be(self, tensors: Iterable[torch.Tensor]) -> None:
        """Put a tensor of its shape behind each parameter."""
        for p, tensor in zip(self.params, tensors, strict=True):
            p.data = tensor

    def pieces(self) -> list[tuple[int, slice]]:
        """(number of a parameter, where it lies in this rank's share), for each that reaches into the share."""
        size = len(self.share)
        first = self.rank * size
        within = [(max(begin - first, 0), min(end - first, size)) for _, (begin, end) in ends(self.shapes)]
        return [(number, slice(begin, end)) for number, (begin, end) in enumerate(within) if begin < end]


# fmt: on


def ends(shapes: Iterable[torch.Size]) -> list[tuple[torch.Size, tuple[int, int]]]:
    """Each shape with where its elements begin and end when all lie end to end."""
    shapes = list(shapes)
    stops = list(accumulate(shape.numel() for shape in shapes))
    return [(shape, (stop - shape.numel(), stop)) for shape, stop in zip(shapes, stops, strict=True)]


def alike(names: dict[Parameter, str]) -> list[dict[Parameter, str]]:
    """Parameters sorted into kinds that can share a flat: one dtype and device, all trained or all frozen."""
    kinds: dict[tuple[torch.dtype, torch.device, bool], dict[Parameter, str]] = {}
    for p, name in names.items():
        kinds.setdefault((p.dtype, p.device, p.requires_grad), {})[p] = name
    return list(kinds.values())
