"""An exercise is a plain function with an identity; the identity lives in code."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_MARK = "__exercise__"


class NotAttempted(Exception):
    """Raised by a stub nobody has written yet. A check turns it into the words 'not attempted'."""


def exercise(identity: str) -> Callable[[Function], Function]:
    """Mark a function as the learner's answer to an exercise.

    The function comes back unchanged, so it can be stepped, recorded and called like any other. Where solutions are
    swapped in (`kit.check.solutions`), the solution of that identity comes back instead.

    Raises ValueError for an identity no lab has, with the ones there are.
    """
    from kit.check import solutions, specs

    if not isinstance(identity, str):
        raise ValueError(
            'write @exercise("id") with the id of the exercise in quotes, for example @exercise("broadcast")'
        )
    if identity not in specs.known():
        raise ValueError(unknown(identity))

    def mark(function: Function) -> Function:
        chosen: Any = solutions.swapped_in(identity) or function
        setattr(chosen, _MARK, identity)
        return chosen

    return mark


def identity_of(function: Callable[..., Any]) -> str:
    """The identity a function was marked with. Raises ValueError for a function that is no exercise."""
    identity = getattr(function, _MARK, None)
    if identity is None:
        name = getattr(function, "__name__", repr(function))
        raise ValueError(
            f'{name} is not marked as an exercise: write @exercise("id") on the line above its def, and run that cell'
            " again"
        )
    return identity


def unknown(identity: str) -> str:
    """What to tell somebody who used an identity no lab has: the ids of the lab that was most likely meant."""
    from kit.check import specs

    known = specs.known()
    near = difflib.get_close_matches(identity, known, n=1, cutoff=0.5)
    labs = [known[near[0]].lab] if near else list(specs.LABS)
    lists = "; ".join(f"lab {lab} has {', '.join(spec.id for spec in specs.of_lab(lab))}" for lab in labs)
    return f"there is no exercise {identity!r}: {lists}"
