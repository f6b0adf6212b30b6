"""AdamW of one rank's shard: what it remembers, and which pieces are stepped at once."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import torch
from torch.nn import Parameter

from kit.topics.zero.reference.by_hand import adamw_
from kit.topics.zero.reference.flat import FlatParameter

DEFAULTS: dict[str, Any] = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}  # torch's

# The shapes stand in one column.
# fmt: off


class ShardedAdamW:
    """AdamW of this rank's shard of a flat parameter: two moments and, where it is asked for, master weights.

    groups: each parameter's options (lr, betas, eps, weight_decay), looked up at every step. master: the dtype of
    weights that AdamW changes and rounds to the real ones after each step, because steps would be lost in 16 bits.
    device: where the state lies and steps are computed; another one than the weights' needs a master too.
    """

    def __init__(
        self, flat: FlatParameter, groups: Mapping[Parameter, Mapping[str, Any]],
        master: torch.dtype | None = None, device: torch.device | None = None,
    ) -> None:
        self.flat, self.groups = flat, groups
        exact = flat.shard if flat.unrounded is None else flat.unrounded                                  # (P/n,)
        self.master = None if master is None else exact.to(device or exact.device, master, copy=True)     # (P/n,)
        self.exp_avg = torch.zeros_like(exact if self.master is None else self.master)                    # (P/n,)
        self.exp_avg_sq = torch.zeros_like(self.exp_avg)                                                  # (P/n,)
        self.steps = dict.fromkeys(flat.params, 0)
        self.pieces = flat.pieces()

    def step(self, grad_sum: torch.Tensor, params: set[Parameter]) -> None:
        """Step the shard against the mean gradient: grad_sum (P/n,) over n. Parameters not in `params` are skipped."""
        for p in params:
            self.steps[p] += 1
        w = self.flat.shard if self.master is None else self.master  # (P/n,)
        grad = grad_sum.to(w) / self.flat.n                          # (P/n,)
        for at, step, options in self.runs(params):
            adamw_(w[at], grad[at], self.exp_avg[at], self.exp_avg_sq[at], step, **options)
        if self.master is not None:
            self.flat.shard.copy_(self.master)                       # (P/n,) rounded

    def runs(self, params: set[Parameter]) -> list[tuple[slice, int, dict[str, Any]]]:
        """(piece of the shard, steps, options) to step at once: neighbours with equal steps and options are one."""

        def alike(piece: tuple[Parameter, slice]) -> tuple[bool, int, int]:
            return piece[0] in params, self.steps[piece[0]], id(self.groups[piece[0]])

        found = []
        for (stepped, step, _), neighbours in groupby(self.pieces, alike):
            (p, first), *others = neighbours
            if stepped:
                options = {key: self.groups[p][key] for key in DEFAULTS}
                found.append((slice(first.start, others[-1][1].stop if others else first.stop), step, options))
        return found

    @torch.no_grad()
    def adopt_written(self) -> None:
        """Weights that are not the master's, rounded, have been written to since: they count from now on."""
        if self.master is not None:
            shard = self.flat.shard                                  # (P/n,)
            written = self.master.to(shard) != shard                 # (P/n,)
            self.master[written.to(self.master.device)] = shard[written].to(self.master)

    def tensors(self) -> list[torch.Tensor]:
        """All that takes up memory."""
        moments = [self.exp_avg, self.exp_avg_sq]
        return moments if self.master is None else [self.master, *moments]


# fmt: on
