"""What kind of memory a storage is: it follows from what the run does with it, and holds for the storage's whole life.

Rules, the first that applies:
- what an object of the learner's or a reference's says of its own tensors by a method `tensors_held()`, or what a
  variable holds that was named for a kind;
- parameters: of a module that was called or handed in; a leaf that requires gradients, is a `Parameter`, an argument or
  an optimizer's, and is used where a graph is built; a `Parameter` that no optimizer updates;
- gradients: some leaf's `.grad`;
- optimizer state: in the `state` of a `torch.optim` optimizer; what it updates and the forward pass does not use
  (master weights);
- other: a module's buffers;
- activations: read or made where a graph is built;
- communication buffers: handed to a collective or a message;
- activations again: read by a backward pass and older than it (saved for it, but of no gradient);
- other: inputs that nothing has used yet, gradients of activations, temporaries.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import IntFlag, auto
from types import FrameType, ModuleType
from typing import Any

import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor

from kit.trace.memory import DECLARED, KINDS

METHOD = "tensors_held"


class Role(IntFlag):
    """What a storage was seen to be."""

    REGISTERED = auto()  # a parameter of a module
    BUFFER = auto()  # a module's buffer
    PARAMETER = auto()  # of the class Parameter, or a leaf handed in
    UPDATED = auto()  # by a torch.optim optimizer
    GRADIENT = auto()
    STATE = auto()  # of a torch.optim optimizer
    GRAPH = auto()  # read where a graph is built
    SENT = auto()  # handed to a collective or a message
    SAVED = auto()  # read by a backward pass, and older than it


def kind_of(roles: Role) -> str:
    """One of `KINDS`, by the rules above."""
    if Role.REGISTERED in roles or (Role.PARAMETER in roles and Role.UPDATED not in roles):
        return "parameters"
    if roles & (Role.PARAMETER | Role.UPDATED) and Role.GRAPH in roles:
        return "parameters"
    if Role.GRADIENT in roles:
        return "gradients"
    if roles & (Role.STATE | Role.UPDATED):
        return "optimizer state"
    if Role.BUFFER in roles:
        return "other"
    if Role.GRAPH in roles:
        return "activations"
    if Role.SENT in roles:
        return "communication buffers"
    return "activations" if Role.SAVED in roles else "other"


def checked(kind: str, said_by: str) -> str:
    """A kind of memory that somebody may name. Raises ValueError with those there are."""
    if kind not in DECLARED:
        raise ValueError(f"{said_by} names memory {kind!r}: choose from {', '.join(DECLARED)}")
    return kind


def tensors_in(value: Any, depth: int = 3) -> Iterator[torch.Tensor]:
    """The tensors of a tensor, a module's parameters, an optimizer's state, and of containers of these."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, torch.nn.Module):
        yield from value.parameters()
    elif isinstance(value, torch.optim.Optimizer):
        yield from tensors_in(value.state, depth)
    elif depth > 0 and isinstance(value, dict):
        for item in list(value.values()):
            yield from tensors_in(item, depth - 1)
    elif depth > 0 and isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item, depth - 1)


def plain(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors with memory of their own that one consists of: a DTensor's local part, a result on its way."""
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        yield tensor
    elif isinstance(tensor, AsyncCollectiveTensor):
        yield from plain(tensor.elem)
    elif hasattr(tensor, "__tensor_flatten__"):
        for name in tensor.__tensor_flatten__()[0]:
            if isinstance(part := getattr(tensor, name), torch.Tensor):
                yield from plain(part)
    else:
        yield tensor


class Declared:
    """What code says of its own memory: objects with a method `tensors_held()`, and variables named for a kind.

    The reference implementations of topics and a learner's own classes know nothing of the probe. An object in the
    stepped function's scope, or one step inside it (an attribute of `self`, an item of a list), that has a method
    `tensors_held()`, which gives a dict of kind -> tensors (or None), is asked at every sample while it lives. What is
    said last of a storage counts, for its whole life; of what is said at one time, the first kind of `KINDS`.

    names: for a kind of memory the variables of the function that hold it. ValueError for an unknown kind.
    """

    def __init__(self, names: Mapping[str, Iterable[str]]) -> None:
        self._kinds = {name: checked(kind, "kinds=") for kind, listed in names.items() for name in _each(listed)}
        self._objects: dict[int, weakref.ref[Any]] = {}

    def keep(self, value: Any) -> bool:
        """Asks an object from now on for as long as it lives, if it has that method; whether it has."""
        if not callable(getattr(type(value), METHOD, None)):
            return False
        with suppress(TypeError):  # what cannot be held weakly is asked while a variable holds it
            self._objects[id(value)] = weakref.ref(value)
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


assert {kind_of(Role(roles)) for roles in range(1 << len(Role))} <= set(KINDS)
