"""Weights that are lent: whole while a layer computes, one share otherwise. Letters as in `kit.parallel.flat`."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn import Parameter

from kit.parallel.flat import Flat, Group, all_gather

# The shapes stand in one column.
# fmt: off


class LentFlat(Flat):
    """A flat of which this rank keeps its share (P/n,); whole (n, P/n) has memory from `fetch` to `free` only.

    Autograd remembers views of `whole` for the backward pass. They see the weights again once it has been gathered
    again, because it is the same tensor that gets memory back. In between a parameter has its shape and no memory, and
    reads as NaN.
    """

    def __init__(self, names: dict[Parameter, str], group: Group = None, dtype: torch.dtype | None = None) -> None:
        super().__init__(names, group, dtype)
        self.share = self.share.clone()                            # (P/n,)
        self.nbytes = self.whole.untyped_storage().nbytes()
        nothing = self.share.new_tensor(float("nan") if self.share.is_floating_point() else 0)  # ()
        self.gone = [nothing.expand(shape) for shape in self.shapes]
        self.coming: dist.Work | None = None
        self.here = True
        self.free()

    def fetch(self) -> None:
        """Begin to gather all shares, unless they are here or under way."""
        if not self.here and self.coming is None:
            self.whole.untyped_storage().resize_(self.nbytes)
            self.coming = all_gather(self.whole, self.share, self.group)  # (n, P/n)

    def gather(self) -> None:
        """Have the weights here, behind their parameters."""
        self.fetch()
        if self.coming is not None:
            self.coming.wait()
            self.coming, self.here = None, True
            self.let_parameters_be(self.views)

    def free(self) -> None:
        """Let go of the memory."""
        if self.coming is not None:
            self.coming.wait()
        self.coming, self.here = None, False
        self.let_parameters_be(self.gone)
        self.whole.untyped_storage().resize_(0)


# fmt: on
