"""What the probe uses of torch beyond its documented interface; how it takes the place of process groups is in
`backend`, `world` and `threads.world`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

live_storage: Callable[[int], torch.UntypedStorage | None] = torch.UntypedStorage._new_with_weak_ptr


def backward_number() -> int:
    """The number of the backward pass that the calling thread is in; -1 outside."""
    return torch._C._current_graph_task_id()


# For a backward pass of the calling thread: calls what it is given at its end, after all that was put there before.
at_end_of_backward: Callable[[Callable[[], None]], None] = torch.autograd.Variable._execution_engine.queue_callback


def storage_number(tensor: torch.Tensor) -> int:
    """A number that is equal for tensors that share memory; 0 where there is none of its own to share."""
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else 0
