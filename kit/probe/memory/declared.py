"""What code says of its own memory: objects with a method `tensors_held()`, and variables named for a kind.

The reference implementations of `kit.parallel` and a learner's own classes know nothing of the probe. An object in the
stepped function's scope, or one step inside it (an attribute of `self`, an item of a list), that has a method
`tensors_held()`, which gives a dict of kind -> tensors (or None), is asked at every sample while it lives. What is said
last of a storage counts, for its whole life; of what is said at one time, the first kind of `KINDS`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType, ModuleType
from typing import Any

import torch

from kit.probe.memory.kinds import checked, tensors_in

METHOD = "tensors_held"


class Declared:
    """names: for a kind of memory the variables of the function that hold it. ValueError for an unknown kind."""

    def __init__(self, names: Mapping[str, Iterable[str]]) -> None:
        self._kinds = {name: checked(kind, "kinds=") for kind, listed in names.items() for name in _each(listed)}
        self._objects: dict[int, weakref.ref[Any]] = {}

    def keep(self, value: Any) -> bool:
        """Asks an object from now on for as long as it lives, if it has that method; whether it has."""
        if not callable(getattr(type(value), METHOD, None)):
            return False
        try:
            self._objects[id(value)] = weakref.ref(value)
        except TypeError:  # cannot be held weakly: it is asked while a variable holds it
            return True
        return True

    def tensors(self, frames: list[FrameType]) -> Iterator[tuple[str, torch.Tensor]]:
        """(kind, tensor) for all that is said now."""
        found = {key: one for key, alive in list(self._objects.items()) if (one := alive()) is not None}
        for frame in frames:
            for name, value in list(frame.f_locals.items()):
                if name in self._kinds:
                    for tensor in tensors_in(value):
                        yield self._kinds[name], tensor
                found |= {id(one): one for one in _within(value) if id(one) not in found and self.keep(one)}
        unmade = {id(frame.f_locals.get("self")) for frame in frames if frame.f_code.co_name == "__init__"}
        for one in (one for key, one in found.items() if key not in unmade):
            for kind, tensors in getattr(one, METHOD)().items():
                for tensor in tensors_in(list(tensors)):
                    yield checked(kind, f"{type(one).__name__}.{METHOD}()"), tensor


def _each(listed: Iterable[str]) -> Iterable[str]:
    return (listed,) if isinstance(listed, str) else listed


def _within(value: Any) -> Iterator[Any]:
    """A value, and what it holds directly: items of a container, attributes of an object that is none of torch's."""
    yield value
    if isinstance(value, list | tuple):
        yield from value
    elif isinstance(value, dict):
        yield from list(value.values())
    elif not isinstance(value, torch.nn.Module | torch.Tensor | type | ModuleType):
        yield from list(getattr(value, "__dict__", {}).values())
