"""Accounting for live storages: what a rank holds while a function runs, in bytes by kind of memory.

Every operation of torch passes `Accounting` on its way to the device. A storage is noticed when one makes it, reads it
or writes to it; from then on it is held weakly, and counts once however many tensors look at it, with the size it has
at each sample (storages are resized). Samples are taken after each operation that makes a storage, so no peak between
two operations is missed; what an operation takes and gives back inside itself does not show. Memory that torch does not
know of, such as the library's own buffers for messages, does not show either, but for what a GPU's allocator tells.
Of that, what cuBLAS keeps to compute in is known by its going when cuBLAS is told to let it go, at the end.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kit.probe.accelerator import Accelerator
from kit.probe.backend import Launch, ObservedGroup
from kit.probe.memory.kinds import Declared, Role, kind_of, plain, tensors_in
from kit.probe.operations import OperationCall
from kit.probe.passes import Passes
from kit.probe.record import RecordRun
from kit.probe.torch_private import backward_number, live_storage
from kit.protocol.messages import Begin, Operations
from kit.trace.facts import Account, MemorySample
from kit.trace.memory import DECLARED, KINDS, thinned

NOTHING = Role(0)
SMALLEST = 1 << 16  # bytes, half of cuBLAS's smallest workspace (":16:8"): a change that may be one
_GPT = str(Path(__file__).parents[2] / "gpt") + os.sep  # its training loop holds the optimizer


class Life:
    """One storage: its size over time, what it was seen to be, and what was said of it."""

    __slots__ = ("declared", "moments", "number", "ref", "roles")

    def __init__(self, storage: torch.UntypedStorage, number: int, sample: int) -> None:
        self.ref = StorageWeakRef(storage)  # while it is held no other storage gets the same address
        self.number = number  # in the order in which storages were noticed
        self.moments = [(sample, storage.nbytes())]  # (number of the sample, bytes from then on)
        self.roles = NOTHING
        self.declared: str | None = None

    @property
    def kind(self) -> str:
        return self.declared or kind_of(self.roles)


class Accounting(TorchDispatchMode):
    """Accounts from `__enter__` to `__exit__`, for the thread that entered it and the backward passes it begins.

    accelerator: of the rank; storages elsewhere (beside a GPU: in the host's memory) are left out. stack: frames in
    whose variables may be what `declared` looks for: objects that know their memory, and variables named for a kind.
    """

    _hidden = False

    def __init__(
        self,
        accelerator: Accelerator,
        names: Mapping[str, Iterable[str]],
        stack: Callable[[FrameType], list[FrameType]],
    ) -> None:
        TorchDispatchMode.__init__(self)
        self._hide()
        self._accelerator = accelerator
        self._declared = Declared(names)
        self._stack = stack
        self._worker = threading.get_ident()
        self._live: dict[int, Life] = {}
        self._over: list[Life] = []
        self._samples: list[tuple[int, str]] = []
        self._allocated: list[int] = []
        self._beyond = 0  # bytes that the allocator had given out beyond known storages, at the last look at its blocks
        self._looks: list[tuple[int, dict[int, int]]] = []  # number of the sample, its blocks beyond known storages
        self._workspaces: dict[int, int] = {}
        self._leaves: weakref.WeakValueDictionary[int, torch.Tensor] = weakref.WeakValueDictionary()
        self._noticed = 0
        self._backward = -1
        self._older = 0  # storages with a lower number are older than the backward pass
        self._busy = False  # looking at tensors may itself call operations

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch would load its compiler, which takes seconds, only to keep it away: see `_hide`."""
        return False

    @classmethod
    def _hide(cls) -> None:
        """Keeps the compiler away from here, where it is loaded."""
        if "torch._dynamo" in sys.modules and not cls._hidden:
            cls.__torch_dispatch__ = torch._disable_dynamo(cls.__torch_dispatch__, recursive=True)  # type: ignore[method-assign]
            cls._hidden = True

    # what there is

    def notice(self, values: Any) -> None:
        """What the function was given: modules, optimizers, tensors, in containers too."""
        for value in tree_leaves(values):
            if isinstance(value, torch.nn.Module):
                self.module(value)
            elif isinstance(value, torch.optim.Optimizer):
                self.optimizer(value)
            elif isinstance(value, torch.Tensor):
                leaf = value.requires_grad and value.is_leaf
                self._see(value, Role.PARAMETER if leaf else NOTHING)
            self._declared.keep(value)

    def module(self, module: torch.nn.Module) -> None:
        for parameter in module.parameters():
            self._see(parameter, Role.REGISTERED)
        for buffer in module.buffers():
            self._see(buffer, Role.BUFFER)

    def optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        for tensor in tensors_in([group["params"] for group in optimizer.param_groups]):
            self._see(tensor, Role.UPDATED)
        for tensor in tensors_in(optimizer):
            self._see(tensor, Role.STATE)

    def sent(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in tensors:
            self._see(tensor, Role.SENT)

    def told(self, what: str, whom: Any) -> None:
        """A pass begins or ends."""
        if isinstance(whom, torch.nn.Module) and what.endswith("begins"):
            self.module(whom)
        elif isinstance(whom, torch.optim.Optimizer):
            self.optimizer(whom)
        if what != "backward begins":  # noticed at its first operation, before anything of it is there
            self.sample(what)

    # what happens

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._busy:
            return func(*args, **kwargs)
        if backward_number() not in (-1, self._backward):
            self._backward, self._older = backward_number(), self._noticed
            self.sample("backward begins")
        self._read(func, args, kwargs)
        if any(hasattr(one, "__tensor_flatten__") for one in types):
            return NotImplemented  # a tensor made of tensors: its parts' operations come here next
        result = func(*args, **kwargs)
        before = self._noticed
        for tensor in _tensors(result):
            self._see(tensor)
        if self._noticed > before:
            self.sample(func.__name__.partition(".")[0])
        return result

    def _read(self, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
        tensors = list(_tensors((args, kwargs)))
        backward = backward_number() != -1
        graph = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        written = {id(t) for i in _written(func) if i < len(args) for t in _tensors(args[i])} if backward else set()
        for tensor in tensors:
            role = Role.GRAPH if graph else NOTHING
            if isinstance(tensor, torch.nn.Parameter):
                role |= Role.PARAMETER
            life = self._see(tensor, role)
            if backward and not graph and life is not None and life.number < self._older and id(tensor) not in written:
                life.roles |= Role.SAVED
        if backward:
            self._gradients()

    def _see(self, tensor: torch.Tensor, role: Role = NOTHING) -> Life | None:
        """The life of a tensor's storage, from now on with a role; None for one that is elsewhere, or nowhere."""
        if role & (Role.PARAMETER | Role.REGISTERED | Role.UPDATED) and tensor.is_leaf:
            self._leaves[id(tensor)] = tensor
        life = None
        for part in plain(tensor):
            if part.device.type != self._accelerator.device.type or part.layout is not torch.strided:
                continue
            storage = part.untyped_storage()
            life = self._live.get(storage._cdata)
            if life is None:
                life = self._live[storage._cdata] = Life(storage, self._noticed, len(self._samples))
                self._noticed += 1
            life.roles |= role
        return life

    def _gradients(self) -> None:
        for leaf in list(self._leaves.values()):
            if leaf.grad is not None:
                self._see(leaf.grad, Role.GRADIENT)

    def sample(self, label: str) -> None:
        """Notes the size of all that lives, now."""
        if self._busy:
            return
        self._busy = True
        try:
            self._gradients()
            said = sorted(self._declared.tensors(self._frames()), key=_last_kind_first)
            for kind, tensor in said:
                life = self._see(tensor)
                if life is not None:
                    life.declared = kind
            number, known = len(self._samples), 0
            self._samples.append((time.monotonic_ns(), label))
            for key, life in list(self._live.items()):
                storage = live_storage(key)
                size = 0 if storage is None else storage.nbytes()
                known += size
                if size != life.moments[-1][1]:
                    life.moments.append((number, size))
                if storage is None:
                    self._over.append(self._live.pop(key))
            allocated = self._accelerator.allocated()
            if allocated is not None:
                self._allocated.append(allocated)
                self._look(number, allocated - known)
        finally:
            self._busy = False

    def _look(self, number: int, beyond: int) -> None:
        """At the allocator's blocks, where as much changed beyond known storages as a workspace can be."""
        if abs(beyond - self._beyond) >= SMALLEST:
            self._beyond = beyond
            known = {storage.data_ptr() for key in self._live if (storage := live_storage(key)) is not None}
            blocks = self._accelerator.blocks()
            self._looks.append((number, {at: size for at, size in blocks.items() if at not in known}))

    def end(self) -> None:
        """The last sample. Workspaces are found here, and with them when they came."""
        self.sample("ends")
        self._workspaces = self._accelerator.workspaces()

    def _frames(self) -> list[FrameType]:
        here = threading.get_ident() == self._worker
        frame = sys._getframe(2) if here else sys._current_frames().get(self._worker)
        return self._stack(frame) if frame is not None else []

    # what came of it

    def facts(self) -> Account:
        """The account, at no more than some thousand moments: of neighbours the one at which most was held stays."""
        kinds = list(KINDS)
        changes = np.zeros((len(kinds), len(self._samples)), np.int64)  # (kinds, samples)
        for life in [*self._over, *self._live.values()]:
            row, before = kinds.index(life.kind), 0
            for number, size in life.moments:
                if number < len(self._samples):
                    changes[row, number] += size - before
                before = size
        held = changes.cumsum(axis=1)
        if self._allocated:
            beyond = np.maximum(0, np.array(self._allocated) - held.sum(axis=0))
            workspaces = np.zeros_like(beyond)
            for number, blocks in self._looks:
                workspaces[number:] = sum(size for at, size in blocks.items() if self._workspaces.get(at) == size)
            held[kinds.index("workspaces")] = np.minimum(beyond, workspaces)
            held[kinds.index("allocator")] = beyond - held[kinds.index("workspaces")]
        fields = list(KINDS.values())
        return Account(
            f"{self._accelerator.device.type} allocator" if self._allocated else "live storages",
            thinned(
                [
                    MemorySample(when, label, **dict(zip(fields, map(int, sizes), strict=True)))
                    for (when, label), sizes in zip(self._samples, held.T, strict=True)
                ]
            ),
        )


class AccountedRun(RecordRun):
    """One rank's part of a recorded function whose memory is accounted for: slower, since every operation is seen.

    The task has `account`: for a kind of memory the names of the variables that hold it.
    """

    def __init__(self, order: Begin, *arguments: Any) -> None:
        super().__init__(order, *arguments)
        assert order.task.account is not None
        self._accounting = Accounting(self.accelerator, order.task.account, self._scopes)
        self._passes = Passes(self._accounting.told, self.clock)
        self._open = ExitStack()

    def _scopes(self, frame: FrameType | None) -> list[FrameType]:
        """The frames in whose variables objects may be that know what their memory is: the learner's and the kit's."""
        found = []
        while frame is not None:
            if self.code.kind(frame.f_code.co_filename) or frame.f_code.co_filename.startswith(_GPT):
                found.append(frame)
            frame = frame.f_back
        return found

    def start(self) -> None:
        super().start()
        self._accounting.notice((self._args, self._kwargs))
        self._accounting.sample("begins")
        self._passes.start()
        self._open.callback(self._passes.stop)
        self._open.enter_context(self._accounting)

    def end(self) -> None:
        self._open.close()
        self._accounting.end()
        super().end()

    def perform(self, group: ObservedGroup, call: OperationCall, launch: Launch) -> dist.Work:
        self._accounting.sent([*call.inputs, *call.outputs])
        self._accounting.sample(f"{call.name} issued")
        return super().perform(group, call, launch)

    def operations(self) -> Operations:
        account, passes = self._accounting.facts(), self._passes.facts
        return replace(super().operations(), account=account, passes=passes)


def _last_kind_first(said: tuple[str, torch.Tensor]) -> int:
    return -DECLARED.index(said[0])


def _tensors(values: Any) -> list[torch.Tensor]:
    """The tensors among an operation's arguments or results, which hold no containers but these."""
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, list | tuple):
        return []
    return [tensor for value in values for tensor in _tensors(value)]


@cache
def _written(func: Any) -> tuple[int, ...]:
    """The positions of the arguments that an operation writes to."""
    arguments = func._schema.arguments
    return tuple(i for i, one in enumerate(arguments) if one.alias_info is not None and one.alias_info.is_write)
