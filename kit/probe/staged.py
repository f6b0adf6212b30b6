"""gloo for what lies on a device: each operation works on copies in the host's memory.

Several ranks may share one GPU, which nccl refuses, and gloo has no business there: it sends and receives by the
pointer, and knows few collectives on a device's memory (pytorch/pytorch#132709). So every operation copies what it is
handed to the host, before it is issued, and what it gave back to the device, when it is over.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map_only

from kit.probe.accelerator import Accelerator
from kit.probe.deferred import AwaitedWork
from kit.probe.operations import READERS
from kit.probe.torch_private import unseen_by_autograd


class StagedGroup:
    """A group of gloo's, for tensors of `accelerator` too. What it is asked beside operations, the group answers."""

    def __init__(self, group: dist.ProcessGroup, accelerator: Accelerator) -> None:
        self._group = group
        self._accelerator = accelerator

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu"), torch.device(self._accelerator.device.type)]

    def _get_backend(self, device: torch.device) -> Any:
        return self._group._get_backend(torch.device("cpu"))

    def __getattr__(self, name: str) -> Any:
        own = getattr(self._group, name)
        return partial(self._staged, READERS[name], own) if name in READERS else own

    def _staged(self, read: Callable[..., Any], method: Callable[..., dist.Work], *given: Any, **options: Any) -> Any:
        copies: dict[int, torch.Tensor] = {}

        def on_host(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.device.type != self._accelerator.device.type:
                return tensor
            if id(tensor) not in copies:
                copies[id(tensor)] = torch.empty_like(tensor, device="cpu", requires_grad=False).copy_(tensor)
            return copies[id(tensor)]

        with torch.no_grad():
            handed = tree_map_only(torch.Tensor, on_host, given)
        outputs = read(*given).outputs
        back = [(tensor, copies[id(tensor)]) for tensor in outputs if id(tensor) in copies]
        work = method(*handed, **options)
        return StagedWork(work, outputs, back, self._accelerator) if copies else work


class StagedWork(AwaitedWork):
    """Over when the real one is, and its results lie where they were wanted. back: pairs of (there, on the host)."""

    def __init__(
        self,
        work: dist.Work,
        outputs: list[torch.Tensor],
        back: list[tuple[torch.Tensor, torch.Tensor]],
        accelerator: Accelerator,
    ) -> None:
        super().__init__(outputs, accelerator)
        self._work = work
        self._back = back

    def source_rank(self) -> int:
        return self._work._source_rank()

    _source_rank = source_rank

    @torch.no_grad()
    def _come(self, timeout: Any, waited_for: bool) -> None:
        self._work.wait() if timeout is None else self._work.wait(timeout)
        for there, here in self._back:
            with unseen_by_autograd(there):  # as what gloo and nccl write is
                there.copy_(here)
        if not waited_for:
            self._accelerator.moment().synchronize()  # whoever is told of it stands on another stream
