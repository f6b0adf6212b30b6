"""Which wrapper averages a parameter's gradient: the newest one alone, so that the mean is taken once.

A mark on the parameter says so: plain numbers, so that parameters travel as before. A copy of a parameter has no mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakMethod

from torch.nn import Parameter

_MARK = "lockstep_gradient_owner"


def own_gradients(owner: object, parameters: Iterable[Parameter], sharded: bool = False) -> None:
    """Make this wrapper the owner; one that owned these gradients before leaves them alone from now on."""
    for p in parameters:
        setattr(p, _MARK, (id(owner), sharded))


def owns_gradient(owner: object, p: Parameter) -> bool:
    """Whether p's gradient is this wrapper's to average."""
    return bool(getattr(p, _MARK, (0, False))[0] == id(owner))


def is_sharded(p: Parameter) -> bool:
    """Whether each rank steps a shard of this parameter only."""
    return bool(getattr(p, _MARK, (0, False))[1])


def weak_hook(method: Callable[[Any], None]) -> Callable[[Any], None]:
    """The method as a hook that does not keep its object alive: the garbage collector cannot see through a hook."""
    weak = WeakMethod(method)

    def hook(p: Parameter) -> None:
        alive = weak()
        if alive is not None:
            alive(p)

    return hook
