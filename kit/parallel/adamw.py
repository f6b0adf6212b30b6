"""AdamW on a flat share: the formula, and what one rank has to remember for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kit.parallel.flat import Flat

DEFAULTS: dict[str, Any] = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}  # torch's

# The shapes stand in one column.
# fmt: off


def adamw_(
    w: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor, step: int,
    lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.01,
) -> None:
    """One step of the weights w (P,) against their gradient g (P,), in place; m and v (P,) are the two moments.

    step counts from 1. Loshchilov and Hutter, Decoupled weight decay regularization (2019). The order of operations,
    and so the rounding, is that of torch.optim.AdamW.
    """
    w.mul_(1 - lr * weight_decay)                                  # (P,)
    m.lerp_(g, 1 - betas[0])                                       # (P,)
    v.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])            # (P,)
    size = (v.sqrt() / (1 - betas[1] ** step) ** 0.5).add_(eps)    # (P,)
    w.addcdiv_(m, size, value=-lr / (1 - betas[0] ** step))        # (P,)


class Moments:
    """What AdamW remembers of this rank's share of a flat: two moments and, where it is asked for, a master.

    groups: for each parameter of the flat its options (lr, betas, eps, weight_decay), looked up at every step. master:
    the dtype of weights of its own, which AdamW changes and which are copied to the real ones after each step: weights
    of 16 bits would swallow small changes. device: where all this lies and is computed; another than the weights' needs
    a master too. None: no master, beside the weights.
    """

    def __init__(
        self, flat: Flat, groups: Sequence[dict[str, Any]],
        master: torch.dtype | None = None, device: torch.device | None = None,
    ) -> None:
        kept = flat.share if flat.exact is None else flat.exact    # (P/n,)
        self.master = None if master is None else kept.to(device or kept.device, master, copy=True)  # (P/n,)
        like = kept if self.master is None else self.master        # (P/n,)
        self.m, self.v = torch.zeros_like(like), torch.zeros_like(like)  # 2 x (P/n,)
        self.steps = [0] * len(flat.params)
        self.pieces = flat.pieces()
        self.groups = groups

    def step(self, weights: torch.Tensor, gradients: torch.Tensor | None, n: int, have: set[int]) -> None:
        """Step the weights (P/n,) against the mean of n ranks' gradients, of which this is the sum (P/n,).

        have: numbers of the parameters that have a gradient; the others are passed by, as optimizers do.
        """
        assert gradients is not None, "a rank that was told to step has summed gradients"
        for number in have:
            self.steps[number] += 1
        w = weights if self.master is None else self.master        # (P/n,)
        g = gradients.to(w) / n                                    # (P/n,)
        for at, step, options in self.runs(have):
            adamw_(w[at], g[at], self.m[at], self.v[at], step, **options)
        if self.master is not None:
            weights.copy_(self.master)                             # (P/n,) rounded

    @torch.no_grad()
    def take_over(self, weights: torch.Tensor) -> None:
        """Where weights (P/n,) are not the master, rounded, somebody has written to them: they count."""
        if self.master is not None:
            written = self.master.to(weights) != weights           # (P/n,)
            self.master[written.to(self.master.device)] = weights[written].to(self.master)

    def tensors(self) -> list[torch.Tensor]:
        """All that takes up memory."""
        return [x for x in (self.master, self.m, self.v) if x is not None]

    def runs(self, have: set[int]) -> list[tuple[slice, int, dict[str, Any]]]:
        """(part of the share, step, options): neighbours that have both alike are one run."""
        runs: list[tuple[slice, int, dict[str, Any]]] = []
        for number, at in self.pieces:
            if number in have:
                step, options = self.steps[number], self.groups[number]
                if runs and runs[-1][0].stop == at.start and runs[-1][1] == step and runs[-1][2] is options:
                    at = slice(runs.pop()[0].start, at.stop)
                runs.append((at, step, options))
        return [(at, step, {key: options[key] for key in DEFAULTS}) for at, step, options in runs]


# fmt: on
