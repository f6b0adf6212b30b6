"""The one place that sees all communication: a process group around the real one.

torch.distributed's functions, DDP's reducer, FSDP2, DTensor, functional collectives and pipelines all end in methods
of a c10d ProcessGroup. `ObservedGroup` is one; it hands each call to the rank's current observer (see `step` and
`record`), or straight to the real group when nothing is being watched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Protocol

import torch
import torch.distributed as dist

from kit.probe.accelerator import Accelerator
from kit.probe.links.throttle import Throttle
from kit.probe.on_device import NATIVE, DeviceWork, HeldMessage, Messages
from kit.probe.operations import READERS, OperationCall
from kit.probe.torch_private import not_compiled, records_itself
from kit.probe.work import OwnWork

NAME = "lockstep"
CONFIG = f"cpu:{NAME},cuda:{NAME},xpu:{NAME}"

Launch = Callable[..., dist.Work]  # of a receive from any source it may be told the source that was met


class Observer(Protocol):
    throttle: Throttle | None  # holds real messages back where links are to be slow

    def perform(self, group: ObservedGroup, call: OperationCall, launch: Launch) -> dist.Work: ...

    def joining(self, name: str, ranks: tuple[int, ...]) -> AbstractContextManager[None]: ...


class Watch:
    """Holds who is watching now. Groups outlive runs, so they ask here at each operation."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self.observer: Observer | None = None
        self.messages = Messages()


class ObservedGroup(dist.ProcessGroup):
    """A ProcessGroup whose every operation passes an observer first.

    `ranks` are the members as global ranks, in group order; `inner` is the real group (gloo, and nccl beside it on
    GPUs).
    """

    def __init__(self, inner: dist.ProcessGroup, rank: int, ranks: tuple[int, ...], name: str, watch: Watch) -> None:
        super().__init__(rank, len(ranks))  # type: ignore[call-arg]
        self.inner = inner
        self.ranks = ranks
        self.label = name
        self._rank = rank
        self.native = inner.name() in NATIVE  # its operations are the device's, in queues that the host does not see
        self._watch = watch
        self._coalesced: list[dist.Work] | None = None  # issued since coalescing began

    def getBackendName(self) -> str:
        return NAME

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return len(self.ranks)

    @property
    def group_name(self) -> str:  # type: ignore[override]
        return self.label

    @property
    def pg_name(self) -> str:
        return self.label

    @property
    def accelerator(self) -> Accelerator:
        return self._watch.accelerator

    def is_for_device(self, call: OperationCall) -> bool:
        """Whether the device does it; gloo does what lies in the CPU's memory."""
        kind = self.accelerator.device.type
        return all(tensor.device.type == kind for tensor in (*call.inputs, *call.outputs))

    def issue_together(self, messages: list[HeldMessage]) -> None:
        device = self.accelerator.device
        self.inner._start_coalescing(device)
        for message in messages:
            message.asked.hold()
            message.call()
        work = self.inner._end_coalescing(device)
        for message in messages:
            message.issued(work)

    def _on_device(
        self, asked: OperationCall, launch: Launch, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Launch:
        """`launch` of an operation that the device does."""
        messages, tensors = self._watch.messages, [*asked.inputs, *asked.outputs]

        def held(source: int | None = None) -> dist.Work:
            message = HeldMessage(messages, self, partial(launch, source), tensors)
            messages.hold(message)
            return message

        def issued() -> dist.Work:
            messages.issue()
            work = DeviceWork(self.accelerator, self.label, tensors, messages)
            work.issued(launch())
            return work

        if asked.name == "barrier":
            for option in (*arguments, *options.values()):
                option.device = self.accelerator.device
        return issued if asked.peer is None else held

    @property
    def _device_types(self) -> list[torch.device]:
        return self.inner._device_types

    def _get_backend(self, device: torch.device) -> Any:
        return self.inner._get_backend(device)

    @contextmanager
    def unobserved(self) -> Iterator[None]:
        """Until it is left, operations of this rank go straight to the real groups, unless its links are throttled."""
        observer = self._watch.observer
        if observer is None or observer.throttle is None:
            self._watch.observer = None
        try:
            yield
        finally:
            self._watch.observer = observer

    def _must_be_another(self, method: str, tensors: list[torch.Tensor], peer: int) -> None:
        """A message has two ends. gloo waits for ever for a rank below 0, and names none of those above the last."""
        what = f"{'send to' if method == 'send' else 'recv from'} rank"
        if not 0 <= peer < self.size():
            any_rank = "; dist.recv(x) without a rank takes what comes first" if method == "recv" and peer < 0 else ""
            there_are = f"this group has {self.size()}: 0 to {self.size() - 1}"
            raise ValueError(f"{what} {peer}: there is no such rank, {there_are}{any_rank}")
        if peer == self._rank and tensors[0].device.type == "cpu":  # nccl can, as a part of a batch
            raise ValueError(f"{what} {self.ranks[peer]}: that is this rank itself, and a message has two ends")

    def connect(self) -> None:
        """Now, while all its ranks are on their way here: the first operation would take seconds for it."""
        if self.native:
            device = self.accelerator.device
            self.inner._get_backend(device).eager_connect_single_device(device)

    def shutdown(self) -> None:
        """c10d says so when the group is destroyed: NCCL's must be told, or it keeps its memory and its threads."""
        if self.native:
            self.inner.shutdown()

    def abort(self) -> None:
        if self.native:
            self.inner.abort()

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """A barrier like any other: the coordinator says who is missing."""
        self.barrier().wait()

    def _start_coalescing(self, device: torch.device) -> None:
        """Coalesced calls are seen and sent one by one."""
        self._coalesced = []

    def _end_coalescing(self, device: torch.device) -> dist.Work:
        works, self._coalesced = self._coalesced or [], None
        return _Together(works)


class _Together(OwnWork):
    """What was issued while calls were coalesced, waited for as one."""

    def __init__(self, works: list[dist.Work]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: Any = None) -> bool:
        for work in self._works:
            work.wait() if timeout is None else work.wait(timeout)
        return True

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)


def _observed(method: str, read: Callable[..., OperationCall]) -> Callable[..., dist.Work]:
    @not_compiled
    def call(self: ObservedGroup, *arguments: Any, **options: Any) -> dist.Work:
        def launch(source: int | None = None) -> dist.Work:
            if source is not None:
                return self.inner.recv(arguments[0], source, arguments[1])
            real: Launch = getattr(self.inner, method)
            return real(*arguments, **options)

        if method in ("send", "recv"):
            self._must_be_another(method, *arguments[:2])
        asked = read(*arguments)
        if self.native and self.is_for_device(asked):
            launch = self._on_device(asked, launch, arguments, options)
        observer = self._watch.observer
        work = launch() if observer is None else observer.perform(self, asked, launch)
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    call.__name__ = method
    return call


for _method, _read in READERS.items():
    setattr(ObservedGroup, _method, _observed(_method, _read))


def register(watch: Callable[[], Watch], real_group: Callable[[Any], dist.ProcessGroup]) -> None:
    """Makes `init_process_group(CONFIG)` build observed groups. Once per process.

    watch: of the calling thread. real_group: makes the group inside, from c10d's options.
    """

    def create(options: Any, _: Any = None) -> ObservedGroup:
        ranks = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))
        observer = watch().observer
        with nullcontext() if observer is None else observer.joining(options.group_id, ranks):
            group = ObservedGroup(real_group(options), options.group_rank, ranks, options.group_id, watch())
            group.connect()
        return group

    records_itself(NAME)
    dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu", "cuda", "xpu"])


def connected_group(options: Any, nccl: bool) -> dist.ProcessGroup:
    """gloo for CPU tensors; for CUDA tensors nccl, where every rank has a GPU of its own."""
    kinds = dist.ProcessGroup.BackendType
    group = dist.ProcessGroup(options.store, options.group_rank, options.group_size)
    gloo_store = dist.PrefixStore("gloo", options.store)
    gloo = dist.ProcessGroupGloo(gloo_store, options.group_rank, options.group_size, options.timeout)
    gloo._set_sequence_number_for_group()
    group._register_backend(torch.device("cpu"), kinds.GLOO, gloo)
    group._set_default_backend(kinds.GLOO)
    if nccl:
        nccl_options = dist.ProcessGroupNCCL.Options()
        nccl_options._timeout = options.timeout
        nccl_options.group_name = options.group_id
        nccl_options.global_ranks_in_group = options.global_ranks_in_group
        store = dist.PrefixStore("nccl", options.store)
        inner = dist.ProcessGroupNCCL(store, options.group_rank, options.group_size, nccl_options)
        inner._set_sequence_number_for_group()
        group._register_backend(torch.device("cuda"), kinds.NCCL, inner)
        group._set_default_backend(kinds.NCCL)
    return group
