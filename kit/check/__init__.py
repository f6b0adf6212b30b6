"""Exercises and their checks: values, then traffic, then cost.

The package can be called, since `kit.check` is both this room and what a notebook says: `check(my_function)`. The room
knows nothing of clusters or widgets: it is handed a bench (how a function is run on k ranks), or a runner directly.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from kit.check import check as _check
from kit.check.exercise import NotAttempted, exercise
from kit.check.hints import hint, solution
from kit.check.spec import Bench
from kit.check.verdict import Verdict

__all__ = ["Bench", "NotAttempted", "Verdict", "check", "exercise", "hint", "solution"]

check = _check.check


def check_here(function: Callable[..., Any], *, seed: int | None = None) -> Verdict:
    """Check a learner's answer on the cluster of this kernel, which is started when there is none.

    function: marked with `@exercise("id")`. seed: repeats the inputs of an earlier check; drawn fresh when left out.
    Returns a Verdict: not attempted, failed with the first sentence that is not fulfilled, or passed; what
    the learner's code raises becomes such a sentence. Where recordings stand in for ranks it is not attempted, and says
    that it needs them. Raises ValueError for a function that is no exercise.
    """
    import kit

    runner, ranks, draw, without_ranks = kit.bench()
    if without_ranks:
        return _check.without(function, without_ranks)
    return check(function, runner, ranks, seed, draw)


class _CallableRoom(types.ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Verdict:
        return check_here(*args, **kwargs)


_CallableRoom.__call__.__doc__ = check_here.__doc__
sys.modules[__name__].__class__ = _CallableRoom
