"""The functions that answer an exercise: the learner's own, the solution, and what people usually get wrong."""

from __future__ import annotations

import importlib.util
import inspect
import linecache
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kit.grade import discovery

if TYPE_CHECKING:
    from kit.grade.exercise import Exercise, Mistake

SOLUTIONS = "LOCKSTEP_SOLUTIONS"  # '1' swaps in all solutions: how `lockstep check --solutions` tells a kernel
Function = TypeVar("Function", bound=Callable[..., Any])

_MARK = "__exercise__"


class NotAttempted(Exception):
    """Raised by a stub nobody has written yet. A check turns it into the words 'not attempted'."""


def exercise(identity: str) -> Callable[[Function], Function]:
    """Mark a function as the learner's answer to an exercise.

    The function comes back unchanged, so it can be stepped, recorded and called like any other. Where solutions are
    swapped in, the solution of that exercise comes back instead.

    Raises ValueError for an identity no lab has, with the ones there are.
    """
    if not isinstance(identity, str):
        raise ValueError(
            'write @exercise("id") with the id of the exercise in quotes, for example @exercise("broadcast")'
        )
    found = discovery.find(identity)

    def mark(function: Function) -> Function:
        solved = os.environ.get(SOLUTIONS, "") not in ("", "0")
        chosen = cast("Function", solution_of(found)) if solved else function
        setattr(chosen, _MARK, identity)
        return chosen

    return mark


def exercise_of(function: Callable[..., Any]) -> Exercise:
    """The exercise a function was marked as an answer to. Raises ValueError for a function that is none."""
    identity = getattr(function, _MARK, None)
    if identity is None:
        name = getattr(function, "__name__", repr(function))
        raise ValueError(
            f'{name} is not marked as an exercise: write @exercise("id") on the line above its def, and run that cell'
            " again"
        )
    return discovery.find(identity)


def solution_is_here(exercise: Exercise) -> bool:
    """Whether the lab came with its solutions: a class may be given one without."""
    return discovery.labs()[exercise.lab].solutions.is_file()


def solution_of(exercise: Exercise) -> Callable[..., Any]:
    """The solution of an exercise, ready to be shipped to ranks by value. ValueError where the lab came without."""
    if not solution_is_here(exercise):
        home = discovery.labs()[exercise.lab].solutions
        raise ValueError(f"lab {exercise.lab} came without its solutions: ask who gave it to you for {home.name}")
    found: Callable[..., Any] = getattr(_solutions(exercise.lab), exercise.function)
    return found


def mistaken(exercise: Exercise, mistake: Mistake) -> Callable[..., Any]:
    """The answer of somebody who makes this mistake, marked, and ready to be shipped to ranks by value."""
    solution = solution_of(exercise)
    text = mistake.code(inspect.getsource(solution))
    file = f"<{exercise.id}: {mistake.name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names = {**solution.__globals__, "__name__": "mistaken"}
    exec(compile(text, file, "exec"), names)
    wrong: Callable[..., Any] = names[exercise.function]
    setattr(wrong, _MARK, exercise.id)
    return wrong


def _solutions(lab: str) -> ModuleType:
    """The solutions of a lab, loaded by path: '00_ranks.py' is no name that `import` takes.

    The module is registered with cloudpickle by value, because ranks cannot import it either.
    """
    name = f"lockstep_solutions_{lab}"
    if name in sys.modules:
        return sys.modules[name]
    found = importlib.util.spec_from_file_location(name, discovery.labs()[lab].solutions)
    assert found is not None and found.loader is not None
    loaded = importlib.util.module_from_spec(found)
    sys.modules[name] = loaded
    try:
        found.loader.exec_module(loaded)
    except BaseException:
        del sys.modules[name]
        raise
    import cloudpickle

    cloudpickle.register_pickle_by_value(loaded)
    return loaded
