"""A c10d process group over gloo with NCCL's manners: as strict as the real one, and stricter where they may differ.

CPU tensors play a device's part (`streams`). What is kept to, and where it is written. C: ProcessGroupNCCL.cpp and .hpp
of torch 2.8 to 2.13 (torch/csrc/distributed/c10d), by function; P: distributed_c10d.py; N: NVIDIA's NCCL documentation.

1. A blocking collective returns no Work: it is put on the caller's current stream (C `collective`, `endCoalescing`:
   `return asyncOp ? work : nullptr`; pytorch#150398). A message's Work is returned always (C `pointToPoint`).
2. `wait` returns at once; the current stream waits (C `WorkNCCL::synchronizeStream`). With a timeout the host stands
   (C `WorkNCCL::wait`; `barrier` without async_op too: `currentStream.synchronize`).
3. The future of a Work is complete as soon as the operation is launched (C `collective`: `future_->markCompleted`).
4. The operations of one communicator are done one after the other, in order of issue (N 'Group calls': one stream for
   each communicator; C `pointToPoint`: 'multiple unbatched p2p operations ... would be serialized').
5. A message's sender is done when its receiver has it, however small it is (N 'Point-to-point': ncclSend 'may block').
6. A communicator is connected by the first operation on it, and that call holds its host until all members come
   (C `initNCCLComm`; N ncclCommInitRank). For a message that is not coalesced this is a communicator of its two ranks
   (C `pointToPoint`, `getKeySendRecv`), unless the group was connected before: then it is the group's own, in whose
   queue it stands (C `eagerConnectSingleDevice`, `eagerInit_`).
7. What is issued between the start and the end of coalescing is one item of the group's queue, of which all messages
   progress together (C `startCoalescing`: ncclGroupStart; N 'Group calls'); only then a rank may send to itself.
8. Tags are ignored (P `isend`: 'tag is not supported with the NCCL backend'); there is no receive from any source
   (Backend.hpp `recvAnysource`), no gather of complex layouts, no sparse tensor (C `check_gpu_single_tensor`).
9. A group that is let go of without `shutdown` or `abort` is noted (C destructor: 'destroy_process_group() was not
    called').
10. Tensors must be contiguous and each call takes one (C `check_gpu_single_tensor`, MULTI_DEVICE_ERROR_MSG).
11. `is_success` and `source_rank` of a Work are refused (C `WorkNCCL::isSuccess`, Work.cpp `sourceRank`).
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from tests.manners import streams
from tests.manners.streams import Task, current_stream

COLLECTIVES = (
    "broadcast",
    "allreduce",
    "allreduce_coalesced",
    "reduce",
    "allgather",
    "allgather_coalesced",
    "_allgather_base",
    "all_gather_single",
    "allgather_into_tensor_coalesced",
    "all_gather_single_coalesced",
    "gather",
    "scatter",
    "reduce_scatter",
    "_reduce_scatter_base",
    "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced",
    "reduce_scatter_single_coalesced",
    "alltoall",
    "alltoall_base",
    "all_to_all_single",
)
ACKNOWLEDGED = 1  # tag of a receiver's answer


@dataclass
class Log:
    """What a process has done with such groups. A test asks it on the ranks."""

    connected: list[str] = field(default_factory=list)  # communicators, in order
    forgotten: list[str] = field(default_factory=list)  # groups let go of without shutdown or abort


log = Log()


class NcclMannered(dist.ProcessGroup):
    """The group. store: where its communicators meet."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta, name: str) -> None:
        super().__init__(rank, size)
        self._rank, self._size, self._name, self._timeout = rank, size, name, timeout
        self._store = store
        self._communicators: dict[str, Communicator] = {}
        self._eager = False
        self._coalescing: list[tuple[str, tuple[Any, ...], Any]] | None = None
        self._ended = threading.Event()
        weakref.finalize(self, _let_go, name, self._ended)

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def getBackendName(self) -> str:
        return "nccl"

    @property
    def group_name(self) -> str:
        return self._name

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]

    def _get_backend(self, device: torch.device) -> NcclMannered:
        return self

    def _set_sequence_number_for_group(self) -> None:
        return

    @property
    def supports_coalescing(self) -> bool:
        return True

    def eager_connect_single_device(self, device: torch.device | None) -> None:
        self._communicator()
        self._eager = True

    def shutdown(self) -> None:
        self._ended.set()
        for communicator in self._communicators.values():
            communicator.close()

    abort = shutdown

    # -- operations

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int) -> MannersWork:
        return self._message("send", tensors, peer)

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int) -> MannersWork:
        return self._message("recv", tensors, peer)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> MannersWork:
        raise RuntimeError("Backend nccl does not support recvAnysource")

    def barrier(self, options: Any = None, **named: Any) -> MannersWork | None:
        options = named.get("opts", options)
        token = torch.zeros(1)
        work = self._put(MannersWork("barrier", [token], []), [("allreduce", ([token],), {})], self._communicator())
        if getattr(options, "asyncOp", True):
            return work
        current_stream().wait_for(work.task)
        current_stream().synchronize()
        return None

    def _start_coalescing(self, device: torch.device) -> None:
        assert self._coalescing is None
        self._coalescing = []

    def _end_coalescing(self, device: torch.device) -> MannersWork | None:
        calls, self._coalescing = self._coalescing, None
        if not calls:
            return None
        written = [tensor for method, arguments, _ in calls for tensor in _written(method, arguments)]
        used = [tensor for _, arguments, named in calls for tensor in _tensors((arguments, *named.values()))]
        work = self._put(MannersWork("coalesced", written, used), calls, self._communicator())
        if all(method in ("send", "recv") or _is_async(arguments, named) for method, arguments, named in calls):
            return work
        current_stream().wait_for(work.task)
        return None

    def _collective(self, method: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> MannersWork | None:
        used = list(_tensors((arguments, *named.values())))
        for tensor in used:
            _check(tensor, method)
        communicator = self._communicator()
        asynchronous = _is_async(arguments, named)
        if self._coalescing is not None:
            self._coalescing.append((method, arguments, named))
            return MannersWork(method, [], []).at_once() if asynchronous else None
        work = self._put(
            MannersWork(method, list(_written(method, arguments)), used), [(method, arguments, named)], communicator
        )
        if asynchronous:
            return work
        current_stream().wait_for(work.task)
        return None

    def _message(self, method: str, tensors: list[torch.Tensor], peer: int) -> MannersWork:
        (tensor,) = tensors
        _check(tensor, method)
        arguments = (tensors, peer)
        if self._coalescing is not None:
            self._communicator()
            self._coalescing.append((method, arguments, {}))
            return MannersWork(method, [], []).at_once()
        if peer == self._rank:
            raise RuntimeError("send and recv to self are only possible in a group of calls")
        communicator = self._communicator() if self._eager else self._of_pair(peer)
        written = tensors if method == "recv" else []
        there = peer if self._eager else int(peer > self._rank)
        return self._put(MannersWork(method, written, tensors), [(method, (tensors, there), {})], communicator)

    def _put(self, work: MannersWork, calls: list[Any], communicator: Communicator) -> MannersWork:
        work.after = current_stream().unfinished()  # the communicator's stream waits for the caller's (C `syncStream`)
        communicator.put(work, calls)
        return work

    def _communicator(self) -> Communicator:
        return self._connected("all", self._rank, self._size)

    def _of_pair(self, peer: int) -> Communicator:
        low, high = sorted((self._rank, peer))
        return self._connected(f"{low}:{high}", int(self._rank == high), 2)

    def _connected(self, key: str, rank: int, size: int) -> Communicator:
        if key not in self._communicators:
            store = dist.PrefixStore(f"manners/{key}", self._store)
            self._communicators[key] = Communicator(store, rank, size, self._timeout)
            log.connected.append(f"{self._name}/{key}")
        return self._communicators[key]


def _collective(method: str) -> Callable[..., MannersWork | None]:
    def call(self: NcclMannered, *arguments: Any, **named: Any) -> MannersWork | None:
        return self._collective(method, arguments, named)

    return call


for _method in COLLECTIVES:
    setattr(NcclMannered, _method, _collective(_method))


class Communicator:
    """One queue, and one thread that does what stands in it in its order."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        gloo = dist.ProcessGroupGloo(store, rank, size, timeout)  # holds the host until all have come
        self._rank = rank
        self._group = dist.ProcessGroup(store, rank, size)
        self._group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
        self._group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        self._queue: queue.SimpleQueue[tuple[MannersWork, list[Any]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="communicator", daemon=True).start()

    def put(self, work: MannersWork, calls: list[Any]) -> None:
        self._queue.put((work, calls))

    def close(self) -> None:
        self._queue.put(None)

    @torch.no_grad()
    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            work, calls = item
            try:
                for task in work.after:
                    task.done.wait()
                self._do(calls)
            except Exception as error:  # reaches whoever waits for the stream
                work.task.finish(error)
            else:
                work.task.finish()
            del item, work, calls

    def _do(self, calls: list[Any]) -> None:
        """Collectives one after the other; messages all at once."""
        for method, arguments, named in calls:
            if method not in ("send", "recv"):
                getattr(self._group, method)(*arguments, **(named or {})).wait()
        messages = [(method, *arguments) for method, arguments, _ in calls if method in ("send", "recv")]
        to_self = [(method, tensor) for method, (tensor,), peer in messages if peer == self._rank]
        outgoing, incoming, answers = [], [], []
        for method, tensors, peer in messages:
            if peer == self._rank:
                continue
            if method == "send":
                outgoing.append(self._group.send(tensors, peer, 0))
                answers.append((token := torch.zeros(1), self._group.recv([token], peer, ACKNOWLEDGED)))
            else:
                incoming.append((peer, self._group.recv(tensors, peer, 0)))
        given = [tensor for method, tensor in to_self if method == "send"]
        for there, here in zip((tensor for method, tensor in to_self if method == "recv"), given, strict=True):
            there.copy_(here)
        for peer, work in incoming:
            work.wait()
            outgoing.append(self._group.send([torch.zeros(1)], peer, ACKNOWLEDGED))
        for work in [*outgoing, *(work for _, work in answers)]:
            work.wait()


class MannersWork(dist.Work):
    """Of an operation, or of a group of them. writes: what it gives; reads: what nobody may change meanwhile."""

    def __init__(self, name: str, writes: list[torch.Tensor], reads: list[torch.Tensor]) -> None:
        super().__init__()
        self.task = Task(name, writes, reads)
        self.after: list[Task] = []
        self._outputs = writes

    def at_once(self) -> MannersWork:
        """Of a call that is coalesced: the Work of the group says when it is done."""
        self.task.finish()
        return self

    def wait(self, timeout: timedelta | None = None) -> bool:
        current_stream().wait_for(self.task)
        if timeout:
            if not self.task.done.wait(timeout.total_seconds()):
                raise dist.DistBackendError(f"Watchdog caught collective operation timeout: {self.task.name}")
            streams.stand(self.task)
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self.task.done.is_set()

    def is_success(self) -> bool:
        raise NotImplementedError("WorkNCCL::isSuccess() is deprecated")

    def exception(self) -> BaseException | None:
        return self.task.error

    def result(self) -> list[torch.Tensor]:
        return self._outputs

    def source_rank(self) -> int:
        raise RuntimeError("sourceRank() may only be called on work objects that correspond to a recv or recv-from-any")

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future[Any]:
        self.task.promised = True
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(self._outputs)
        return future


def connected_group(options: Any, nccl: bool) -> dist.ProcessGroup:
    """In the place of `kit.probe.backend.connected_group`, which makes the real groups of a rank."""
    return NcclMannered(options.store, options.group_rank, options.group_size, options.timeout, options.group_id)


def _let_go(name: str, ended: threading.Event) -> None:
    if not ended.is_set():
        log.forgotten.append(name)


def _check(tensor: torch.Tensor, method: str) -> None:
    if tensor.layout is not torch.strided:
        raise ValueError("Tensors must be CUDA and dense")
    if not tensor.is_contiguous():
        raise ValueError("Tensors must be contiguous")


def _is_async(arguments: tuple[Any, ...], named: Any) -> bool:
    """Of the options that a call was given; a call without them is asynchronous (Types.hpp `asyncOp = true`)."""
    return all(getattr(value, "asyncOp", True) for value in (*arguments, *(named or {}).values()))


def _written(method: str, arguments: tuple[Any, ...]) -> Iterator[torch.Tensor]:
    """Its first argument, which for a message is what is sent or received."""
    if method != "send":
        yield from _tensors(arguments[0])


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)
