"""Tensors of a GPU that is not there: their values cannot be had but by a copy to the CPU.

Their device is called meta, the only one beside the CPU that every build of torch can compute gradients on.

What is kept to, and where it is written:

1. A tensor of a device is not the host's: numpy, and libraries that take a pointer (gloo), cannot have it
   (torch/csrc/utils/tensor_numpy.cpp: "can't convert {} device type tensor to numpy").
2. An operation takes tensors of one device, but for scalars (aten/src/ATen/TensorIterator.cpp: 'Expected all tensors to
   be on the same device').
3. Numbers for a device's tensor are drawn by a generator of that device (aten/src/ATen/core/Generator.h
   `check_generator`: "Expected a '{}' device type for generator but found '{}'").
4. What is on a device cannot be pinned (aten/src/ATen/native/Memory.cpp `pin_memory`: 'only dense CPU tensors can be
   pinned').
5. A process group has a backend for each kind of device, and gloo is none for this one
   (torch/csrc/distributed/c10d/ProcessGroup.hpp `getBackend`: 'No backend type associated with device type').
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

DEVICE = torch.device("meta")


class OnDevice(torch.Tensor):
    """A tensor of the device; `host` has its values."""

    host: torch.Tensor

    @staticmethod
    def __new__(cls, host: torch.Tensor) -> OnDevice:
        made: OnDevice = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            host.shape,
            strides=host.stride(),
            storage_offset=host.storage_offset(),
            dtype=host.dtype,
            device=DEVICE,
        )
        made.host = host
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _perform(func, args, kwargs or {})

    def tolist(self) -> Any:
        return self.host.tolist()

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"OnDevice({self.host})"


class Device(TorchDispatchMode):
    """Within it tensors can be made on the device, by the thread that entered it."""

    def __enter__(self) -> Any:
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor makes its own on the CPU, and moves it here
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        torch._C._set_only_lift_cpu_tensors(False)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _perform(func, args, kwargs or {})


def _perform(func: Any, args: Any, kwargs: Any) -> Any:
    tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
    there = any(isinstance(one, OnDevice) for one in tensors)
    wanted = kwargs.get("device")
    target = torch.device(wanted) if wanted is not None else DEVICE if there else None
    name = func._schema.name
    moves = name in ("aten::_to_copy", "aten::copy_")
    if there and not moves and any(not isinstance(one, OnDevice) and one.dim() for one in tensors):
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices ({name})")
    if there and func.namespace == "c10d":
        raise RuntimeError(f"No backend type associated with device type {DEVICE.type}")
    generator = kwargs.get("generator")
    on_device = target is not None and target.type == DEVICE.type
    if on_device and generator is not None:
        raise RuntimeError(f"Expected a '{DEVICE.type}' device type for generator but found '{generator.device.type}'")
    if there and "pin_memory" in name:
        raise RuntimeError(f"cannot pin a tensor of {DEVICE}: only dense CPU tensors can be pinned")
    if wanted is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    result = func(*_on_host(args), **_on_host(kwargs))
    if name == "aten::copy_":
        return args[0]
    if not on_device:
        return result
    given = {id(one.host): one for one in tensors if isinstance(one, OnDevice)}
    return tree_map_only(torch.Tensor, lambda one: given[id(one)] if id(one) in given else OnDevice(one), result)


def _on_host(values: Any) -> Any:
    return tree_map_only(OnDevice, lambda one: one.host, values)
