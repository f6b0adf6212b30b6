"""Where a plain function computes: on its rank's device, without saying so.

A function of a lab says `torch.ones(4)` and means the rank's GPU, where it has one. With torch's default device alone
that breaks ordinary code in places that have nothing to do with GPUs. Here they go on as on a CPU:

- A generator is the CPU's unless its maker says otherwise, and torch refuses to fill a GPU's tensor from it: so
  shuffling by a DataLoader, a DistributedSampler or `random_split` fails. Here numbers are drawn on the CPU, the same
  as on a CPU rank, and go to the device.
- `.numpy()`, and numpy where it is handed a tensor, get a copy in the host's memory; it cannot be written to, because
  the tensor would not change with it.
- What lies on the device needs no `pin_memory`.
- A fork, such as a worker of a DataLoader, cannot use its parent's GPU: it makes its tensors on the CPU.

A script that makes its group itself, by `init_process_group`, says itself where its tensors lie, as under torchrun:
from there on (`leave`) nothing of this holds.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from kit.probe.torch_private import DeviceContext, device_constructors

HOST = torch.device("cpu")
_FOR_NUMPY: frozenset[Any] = frozenset((torch.Tensor.numpy, torch.Tensor.__array__))


class Placing(DeviceContext):  # type: ignore[misc]
    """Torch's default device for the thread that enters it, with exceptions."""

    def __enter__(self) -> None:
        global _here
        super().__enter__()
        _here = self

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        device = self.device
        if device.type == "cpu":
            return func(*args, **kwargs)
        makes = func in device_constructors() and kwargs.get("device") is None
        generator = kwargs.get("generator")
        if generator is not None and generator.device.type != device.type:
            return _drawn(func, args, kwargs, device, makes)
        if makes:
            kwargs["device"] = device
        elif func in _FOR_NUMPY and args[0].device.type == device.type:
            array = func(args[0].cpu(), *args[1:], **kwargs)
            array.flags.writeable = False
            return array
        elif func is torch.Tensor.pin_memory and args[0].device.type == device.type:
            return args[0]
        return func(*args, **kwargs)


def _drawn(func: Any, args: Any, kwargs: Any, device: torch.device, makes: bool) -> Any:
    """What `func` draws from a generator elsewhere, on the device where it would be had the device drawn it."""
    there = kwargs["generator"].device
    if makes:
        drawn = func(*args, **{**kwargs, "device": there})
        return drawn.detach().to(device).requires_grad_(drawn.requires_grad)
    given = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)]
    if not any(one.device.type == device.type for one in given):
        return func(*args, **kwargs)
    args, kwargs = tree_map_only(torch.Tensor, lambda one: one.detach().to(there), (args, kwargs))
    drawn = func(*args, **kwargs)
    if func.__name__.endswith("_"):  # into the tensor it is called on
        with torch.no_grad():
            return given[0].copy_(drawn)
    return drawn.to(device)


_here: Placing | None = None  # of this process's rank


def placed(device: torch.device) -> AbstractContextManager[Any]:
    """A context in which the calling thread's plain code computes on `device`."""
    return nullcontext() if device.type == "cpu" else Placing(device)


def leave() -> None:
    """From now on tensors lie where code puts them."""
    if _here is not None:
        _here.device = HOST


os.register_at_fork(after_in_child=leave)
