"""Solutions: found by the identity of an exercise, and swapped in without touching the notebook."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from kit.check.spec import Spec
from kit.resources import labs

ENVIRONMENT = (  # '1' swaps in the solutions of every lab: how `lockstep check --solutions` tells a kernel
    "LOCKSTEP_SOLUTIONS"
)
_in_use: set[str] = set()


def use(lab: str | int | None) -> None:
    """From now on `@exercise` returns the solutions of a lab ('01_collectives', '01', 1); None ends it for all labs.

    Raises ValueError for a lab that has no exercises, with the ones that have.
    """
    from kit.check import specs

    if lab is None:
        _in_use.clear()
    else:
        _in_use.add(specs.lab_named(lab))


def swapped_in(identity: str) -> Callable[..., Any] | None:
    """The solution of an exercise where solutions are in use, else None."""
    from kit.check import specs

    spec = specs.find(identity)
    wanted = spec.lab in _in_use or os.environ.get(ENVIRONMENT, "") not in ("", "0")
    return function(spec) if wanted else None


def function(spec: Spec) -> Callable[..., Any]:
    """The solution function of an exercise, ready to be shipped to ranks by value."""
    return getattr(module(spec.lab), spec.function)


def module(lab: str) -> ModuleType:
    """The solutions of a lab, loaded by path: '00_ranks.py' is no name that `import` takes.

    The module is registered with cloudpickle by value, because ranks cannot import it either.
    """
    name = f"lockstep_solutions_{lab}"
    if name in sys.modules:
        return sys.modules[name]
    path = labs() / "solutions" / f"{lab}.py"
    found = importlib.util.spec_from_file_location(name, path)
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
