"""Where the gradients of a flat are between backward and step: all of them, or this rank's share alone.

Both take what autograd leaves in `p.grad`, hand it to a reduce-scatter, and keep what that brings. Until the step
gradients are sums over ranks and micro-batches. Letters as in `kit.parallel.flat`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from kit.parallel.flat import Flat, flatten, unflatten

# The shapes stand in one column.
# fmt: off


class WholeGradients:
    """Stage 1: all gradients, in a buffer (n, P/n) that stays, and of which every `p.grad` is a view.

    Once they are summed, this rank's row is the sum and the other rows are zero: what was handed over is not here any
    more. So what another micro-batch adds can be summed in the same way. have: numbers of the parameters summed.
    """

    def __init__(self, flat: Flat) -> None:
        self.flat = flat
        self.buffer = torch.zeros_like(flat.whole)                 # (n, P/n)
        self.share = self.buffer[flat.rank]                        # (P/n,)
        self.views = unflatten(self.buffer, flat.shapes)
        self.have: set[int] = set()

    def arrived(self, number: int) -> None:
        """A parameter has a gradient: let it live in the buffer, where autograd adds what else comes."""
        p, view = self.flat.params[number], self.views[number]
        if p.grad is not None and p.grad is not view:
            view.copy_(p.grad)                                     # shape of p
            p.grad = view

    def take(self) -> tuple[torch.Tensor, torch.Tensor]:
        """What to sum (n, P/n), and where this rank's share of the sum goes (P/n,): a row of it."""
        for number, p in enumerate(self.flat.params):
            if p.grad is None:
                self.views[number].zero_()                         # shape of p
            else:
                self.arrived(number)
                self.have.add(number)
        return self.buffer, self.share

    def keep(self, share: torch.Tensor) -> None:
        """This rank's share of the sum (P/n,) is there."""
        self.buffer[: self.flat.rank] = 0                          # (r, P/n)
        self.buffer[self.flat.rank + 1 :] = 0                      # (n-1-r, P/n)

    def clear(self) -> None:
        """Forget all gradients; what comes next overwrites the buffer."""
        self.have.clear()
        for p in self.flat.params:
            p.grad = None

    def tensors(self) -> list[torch.Tensor]:
        """All that takes up memory."""
        return [self.buffer, *whole_ones(self.flat)]


class ShareGradients:
    """Stages 2 and 3: this rank's share (P/n,) of the sum, once there is one. A `p.grad` stays until it is taken."""

    def __init__(self, flat: Flat) -> None:
        self.flat = flat
        self.share: torch.Tensor | None = None                     # (P/n,)
        self.have: set[int] = set()

    def arrived(self, number: int) -> None:
        """A parameter has a gradient: it may stay where it is."""

    def take(self) -> tuple[torch.Tensor, torch.Tensor]:
        """What to sum (n, P/n), and where this rank's share of the sum goes (P/n,). Every `p.grad` is gone then."""
        params = self.flat.params
        self.have |= {number for number, p in enumerate(params) if p.grad is not None}
        bucket = flatten([torch.zeros_like(p) if p.grad is None else p.grad for p in params], self.flat.n)  # (n, P/n)
        for p in params:
            p.grad = None
        return bucket, torch.empty_like(bucket[0])

    def keep(self, share: torch.Tensor) -> None:
        """This rank's share of the sum (P/n,) is there: the first, or one to add to the micro-batches before."""
        self.share = share if self.share is None else self.share.add_(share)  # (P/n,)

    def clear(self) -> None:
        """Forget all gradients, and let go of their memory."""
        self.have.clear()
        self.share = None
        for p in self.flat.params:
            p.grad = None

    def tensors(self) -> list[torch.Tensor]:
        """All that takes up memory."""
        return whole_ones(self.flat) if self.share is None else [self.share, *whole_ones(self.flat)]


# fmt: on


def whole_ones(flat: Flat) -> list[torch.Tensor]:
    """The gradients that autograd has left in `p.grad`."""
    return [p.grad for p in flat.params if p.grad is not None]


Gradients = WholeGradients | ShareGradients
MakeGradients = Callable[[Flat], Gradients]
