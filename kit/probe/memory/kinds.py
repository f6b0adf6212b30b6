"""What kind of memory a storage is: it follows from what the run does with it, and holds for the storage's whole life.

Rules, the first that applies:
- what an object of the learner's or of `kit.parallel` says of its own tensors by a method `tensors_held()`, or what a
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

from collections.abc import Iterator
from enum import IntFlag, auto
from typing import Any

import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor

from kit.trace.holdings import DECLARED, KINDS


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


assert {kind_of(Role(roles)) for roles in range(1 << len(Role))} <= set(KINDS)
