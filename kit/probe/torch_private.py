"""What the probe uses of torch beyond its documented interface; how it takes the place of process groups is in
`backend`, `world` and `threads.world`. `torch_names` lists all of it, with the versions that have it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch
import torch.distributed.distributed_c10d as c10d
from torch._C._dynamo import eval_frame
from torch.utils import _device

DeviceContext: Any = _device.DeviceContext  # the function mode that gives a thread its default device
device_constructors: Callable[[], set[Any]] = _device._device_constructors  # what makes tensors where that says

live_storage: Callable[[int], torch.UntypedStorage | None] = torch.UntypedStorage._new_with_weak_ptr


def backward_number() -> int:
    """The number of the backward pass that the calling thread is in; -1 outside."""
    return torch._C._current_graph_task_id()


# A context in which writing to a tensor does not count as a change of what a graph has saved.
unseen_by_autograd: Callable[[torch.Tensor], AbstractContextManager[Any]] = (
    torch.autograd._unsafe_preserve_version_counter
)

# For a backward pass of the calling thread: calls what it is given at its end, after all that was put there before.
at_end_of_backward: Callable[[Callable[[], None]], None] = torch.autograd.Variable._execution_engine.queue_callback


def let_go_of_workspaces() -> None:
    """cuBLAS's of all threads and streams; the next product takes them anew."""
    if hasattr(torch._C, "_cuda_clearCublasWorkspaces"):  # in builds for CUDA and ROCm
        torch._C._cuda_clearCublasWorkspaces()


def storage_number(tensor: torch.Tensor) -> int:
    """A number that is equal for tensors that share memory; 0 where there is none of its own to share."""
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else 0


def records_itself(backend: str) -> None:
    """Tells torch's flight recorder that what is inside a group of this backend has a recorder of its own."""
    if hasattr(c10d, "_FR_SELF_RECORDING_BACKENDS"):  # since 2.15, which would ask the group for a name in C++
        c10d._FR_SELF_RECORDING_BACKENDS.add(backend)


Function = TypeVar("Function", bound=Callable[..., Any])

# What torch.compile would do with a call made now; None: nothing, the caller is not within a compiled function.
compiles: Callable[[], Any] = eval_frame.get_eval_frame_callback


def not_compiled(function: Function) -> Function:
    """Lets compiled code that comes by here, from C++ for instance, run it and all it calls as it is written."""
    return _skipped(function, and_callees=True)


def not_compiled_itself(function: Function) -> Function:
    """Runs as it is written even in compiled code, and can ask there whether code `compiles`."""
    return _skipped(function, and_callees=False)


def _skipped(function: Function, and_callees: bool) -> Function:
    tools: Any = eval_frame
    skip, usual = tools._FrameAction.SKIP, tools._FrameAction.DEFAULT
    tools.set_code_exec_strategy(function.__code__, tools._FrameExecStrategy(skip, skip if and_callees else usual))
    return function
