"""Muon: a step along the momentum of a matrix, with all its singular values made nearly one.

K. Jordan and others, Muon: an optimizer for hidden layers in neural networks (2024). A gradient of a matrix has few
large directions and many small ones, which a step of its own size would hardly touch; here all count the same. What
looks like a matrix and is a table, the embedding and the head, and vectors are stepped by AdamW.
Letters: m rows, n columns of a matrix.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

# Five times p(x) = a x + b x^3 + c x^5 bring singular values from 0.01 to 1 into about 0.7 to 1.2: what is lost in
# exactness, steps do not miss. The coefficients are the paper's.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
TURNS = 5
LIKE_ADAM = 0.2  # a step's root mean square: AdamW's usual one, so both take the same rate (J. Liu and others, 2025)


class Muon(torch.optim.Optimizer):
    """Steps matrices, and has an AdamW step all the rest.

    Both keep their moments in the one `state`, under the same name where they are alike.
    """

    def __init__(
        self, matrices: Iterable[nn.Parameter], others: torch.optim.AdamW, weight_decay: float, momentum: float = 0.95
    ) -> None:
        defaults = {"lr": 0.0, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__([{"params": list(matrices)}], defaults)
        self.matrices, self.others = self.param_groups[0], others
        others.state = self.state
        self.param_groups += others.param_groups

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """ValueError for a closure: gradients are computed before."""
        if closure is not None:
            raise ValueError("a step takes no closure here: call backward first, then step")
        for p in self.matrices["params"]:
            if p.grad is not None:
                self._step(p, p.grad)
        self.others.step()

    def _step(self, p: nn.Parameter, g: Tensor) -> None:
        rate, beta = self.matrices["lr"], self.matrices["momentum"]
        moment = self.state[p].setdefault("exp_avg", torch.zeros_like(p))  # (m, n)
        moment.lerp_(g, 1 - beta)
        ahead = g.lerp(moment, beta)  # (m, n): Nesterov's
        p.mul_(1 - rate * self.matrices["weight_decay"])
        p.add_(orthogonal(ahead), alpha=-rate * LIKE_ADAM * max(p.shape) ** 0.5)


def orthogonal(g: Tensor) -> Tensor:
    """The nearest matrix to g (m, n) with singular values of one, roughly, without finding these (Newton-Schulz)."""
    a, b, c = COEFFICIENTS
    x: Tensor = g if len(g) <= g.shape[1] else g.T  # the smaller product is x xT
    x = x / (x.norm() + 1e-7)  # no singular value above 1
    for _ in range(TURNS):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x if len(g) <= g.shape[1] else x.T
