"""Streams and events of a device that is not there, and tensors that may be touched only when it is done with them.

Work for the device (`Task`) is done by threads. A stream is known here by what it waits for: plain computing is done at
once by the host, so what it would find on a device is settled as it touches a tensor that a task writes:

- its stream waits for that task: the host stands here until it is done, as a device would; it spins, as in
  cudaStreamSynchronize (CUDA driver API, cudaDeviceScheduleAuto: it spins where there are processors enough);
- its stream does not: on a device it would read what is not there yet, and nobody would say so. Here it is an error.

All threads share one default stream, and each says which stream is its current one (CUDA runtime API, 'Stream
synchronization behavior': the legacy default stream; torch/cuda/__init__.py `current_stream`, which is of the calling
thread).
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from types import TracebackType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

NAP = 2e-3  # s: not all of a processor, of which there are two
_WORK = bytes(1 << 18)  # what it spins on: some 0.2 ms


class Race(RuntimeError):
    """A tensor was touched while the device still wrote it, by a stream that did not wait for that."""


class Task:
    """Something the device is to do. writes: what nobody may touch until it is done; reads: what nobody may change."""

    def __init__(self, name: str, writes: Sequence[torch.Tensor], reads: Sequence[torch.Tensor]) -> None:
        self.name = name
        self.done = threading.Event()
        self.ended = 0.0  # s of the monotonic clock
        self.error: BaseException | None = None
        self.promised = False  # by a future, on which whoever holds it waits in C++, unseen from here
        self._written = {_memory(tensor) for tensor in writes}
        self._used = self._written | {_memory(tensor) for tensor in reads}
        with _lock:
            for memory in self._used:
                _under_way[memory].append(self)

    def minds(self, memory: int, writing: bool) -> bool:
        """Whether it matters to it that somebody reads there, or writes."""
        return writing or memory in self._written

    def finish(self, error: BaseException | None = None) -> None:
        with _lock:
            for memory in self._used:
                _under_way[memory].remove(self)
                if not _under_way[memory]:
                    del _under_way[memory]
        self.error, self.ended = error, time.monotonic()
        self.done.set()


class Stream:
    def __init__(self, *_: Any, **__: Any) -> None:
        self._tasks: list[Task] = []

    def wait_for(self, task: Task) -> None:
        self._tasks = [*self.unfinished(), task]

    def wait_event(self, event: Event) -> None:
        for task in event.tasks:
            self.wait_for(task)

    def wait_stream(self, other: Stream) -> None:
        for task in other.unfinished():
            self.wait_for(task)

    def waits_for(self, task: Task) -> bool:
        return task in self._tasks

    def unfinished(self) -> list[Task]:
        return [task for task in self._tasks if not task.done.is_set()]

    def query(self) -> bool:
        return not self.unfinished()

    def synchronize(self) -> None:
        for task in self.unfinished():
            stand(task)


class Event:
    """Reached when all that its stream waited for when it was recorded is done."""

    def __init__(self, enable_timing: bool = False, **_: Any) -> None:
        self.tasks: list[Task] = []
        self._recorded = 0.0
        self._timed = enable_timing

    def record(self, stream: Stream | None = None) -> None:
        self.tasks = (stream or current_stream()).unfinished()
        self._recorded = time.monotonic()

    def query(self) -> bool:
        return all(task.done.is_set() for task in self.tasks)

    def synchronize(self) -> None:
        for task in self.tasks:
            stand(task)

    def wait(self, stream: Stream | None = None) -> None:
        (stream or current_stream()).wait_event(self)

    def elapsed_time(self, later: Event) -> float:
        """Milliseconds. As in torch, of events that were made for it and have both been reached."""
        if not (self._timed and later._timed):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        if not (self.query() and later.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return (later.reached_at() - self.reached_at()) * 1e3

    def reached_at(self) -> float:
        return max([self._recorded, *(task.ended for task in self.tasks)])


DEFAULT = Stream()
_here = threading.local()
_lock = threading.RLock()
_under_way: defaultdict[int, list[Task]] = defaultdict(list)  # by the memory they write


def current_stream(*_: Any) -> Stream:
    return getattr(_here, "stream", DEFAULT)


@contextmanager
def on(stream: Stream) -> Iterator[None]:
    before, _here.stream = current_stream(), stream
    try:
        yield
    finally:
        _here.stream = before


def stand(task: Task) -> None:
    """The host waits for the device, and its thread does not sleep meanwhile."""
    while not task.done.is_set():
        time.sleep(NAP), sha256(_WORK)  # in one line: whoever looks from outside finds it there always
    if task.error is not None:
        raise task.error


def synchronize(*_: Any) -> None:
    """The whole device."""
    with _lock:
        tasks = [task for tasks in _under_way.values() for task in tasks]
    for task in [*tasks, *DEFAULT.unfinished()]:
        stand(task)


def under_way() -> int:
    """Tensors that the device is at work on."""
    return len(_under_way)


def touch(tensor: torch.Tensor, writing: bool = False) -> None:
    """The calling thread's stream reads it now, or writes it."""
    if not _under_way or tensor.layout is not torch.strided:
        return
    memory = _memory(tensor)
    with _lock:
        tasks = [task for task in _under_way.get(memory, ()) if task.minds(memory, writing)]
    stream = current_stream()
    for task in tasks:
        if not (task.promised or stream.waits_for(task)):
            raise Race(
                f"a tensor that {task.name} still {'reads' if writing else 'writes'} was "
                f"{'changed' if writing else 'read'}, and this stream does not wait for that"
            )
        stand(task)


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


class Touches:
    """Within it the calling thread's operations on tensors are seen, and what reads their memory past torch."""

    def __init__(self) -> None:
        self._modes = (_Operations(), _Readers(), _Played())

    def __enter__(self) -> None:
        for mode in self._modes:
            mode.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(kind, error, trace)


_PLAIN = (torch.Tensor, torch.nn.Parameter)
_READERS = {torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__reduce_ex__, torch.Tensor.__array__}


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if _under_way and "c10d" not in func.namespace and not _only_looks(func):
            for parameter, value in _given(func._schema.arguments, args, named):
                for tensor in _leaves([value]):
                    touch(tensor, parameter.alias_info is not None and parameter.alias_info.is_write)
        return func(*args, **named)


class _Readers(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _under_way and func in _READERS:
            touch(args[0])
        return func(*args, **(kwargs or {}))


class _Played(TorchFunctionMode):
    """Where code says that a tensor is to lie on a GPU, it lies where CPU tensors play that one's part."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*map(_here, args), **{name: _here(value) for name, value in (kwargs or {}).items()})


def _here(value: Any) -> Any:
    return "cpu" if isinstance(value, torch.device | str) and str(value).startswith("cuda") else value


def _leaves(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    """Of a DTensor its part here; of one that waits for itself (AsyncCollectiveTensor) nothing."""
    for value in values:
        if isinstance(value, torch.Tensor):
            inner = getattr(value, "_local_tensor", value)
            if type(inner) in _PLAIN:
                yield inner
        elif isinstance(value, list | tuple):
            yield from _leaves(value)


def _given(parameters: Any, args: Any, named: Any) -> Iterator[tuple[Any, Any]]:
    yield from zip(parameters, args, strict=False)
    yield from ((parameter, named[parameter.name]) for parameter in parameters if parameter.name in named)


@cache
def _only_looks(func: Any) -> bool:
    """It reads no memory: a view, or a new tensor like another."""
    name, returns = func._schema.name, func._schema.returns
    if name.endswith("_like") or "::new_" in name or name.startswith("aten::sym_"):
        return True
    return bool(returns) and all(one.alias_info is not None and not one.alias_info.is_write for one in returns)
