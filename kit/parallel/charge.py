"""Who looks after a parameter's gradients: one wrapper at a time, the newest, so that no two of them take the mean.

A mark on the parameter says it: plain numbers, so that parameters travel as before. A copy of a parameter has no mark.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.nn import Parameter

_MARK = "lockstep_in_charge"


def take_charge(keeper: Any, parameters: Iterable[Parameter], sharded: bool = False) -> None:
    """From now on the keeper looks after these; one that did so before finds itself relieved."""
    for p in parameters:
        setattr(p, _MARK, (id(keeper), sharded))


def in_charge(keeper: Any, p: Parameter) -> bool:
    """Whether the keeper is the one who looks after this parameter."""
    return bool(getattr(p, _MARK, (0, False))[0] == id(keeper))


def is_sharded(p: Parameter) -> bool:
    """Whether a share is all that a rank steps of this parameter."""
    return bool(getattr(p, _MARK, (0, False))[1])
