"""The face of torch.optim that learning rate schedules, hooks and profilers know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.optim import Optimizer

from kit.parallel.adamw import DEFAULTS


class AsOptimizer(Optimizer):
    """An optimizer whose work is done elsewhere: `step()` calls `work()`, `zero_grad()` calls `forget()`.

    clip: what scales gradients to a norm, and returns the norm that they had.

    param_groups: those the work looks its options up in, so that what a schedule writes to them counts.
    """

    def __init__(
        self,
        param_groups: Sequence[dict[str, Any]],
        work: Callable[[], None],
        forget: Callable[[], None],
        clip: Callable[[float], float],
    ) -> None:
        super().__init__(param_groups, DEFAULTS)
        self._work, self._forget, self.clip = work, forget, clip

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """ValueError for a closure: gradients are summed over the ranks once, in the backward pass before."""
        if closure is not None:
            raise ValueError("a step takes no closure here: call backward first, then step")
        self._work()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets all gradients. `set_to_none` is what it always does."""
        self._forget()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """ValueError once it is made: what is trained is settled when the model is sharded."""
        if hasattr(self, "_work"):
            raise ValueError("what is trained is settled when the model is sharded: pass groups=[...] there")
        super().add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """NotImplementedError: each rank has a share of the moments, and torch's form has no place for shares."""
        raise NotImplementedError("the moments are this rank's shares: save the weights inside `with zero.whole():`")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """NotImplementedError, as `state_dict`; groups that were loaded would no longer be those that are looked up."""
        raise NotImplementedError("the moments are this rank's shares: load the weights inside `with zero.whole():`")
