"""gloo for tensors that it must not touch: they are staged through the host's memory."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from kit.probe.accelerator import Cpu
from kit.probe.operations import READERS
from kit.probe.staged import StagedGroup
from tests import gloo
from tests.manners.tensors import DEVICE, Device, OnDevice

N = 2
Make = Callable[[torch.Tensor], torch.Tensor]
METHODS = [name for name in READERS if name not in ("barrier", "recv_anysource") and "single" not in name]


def whole(rank: int) -> torch.Tensor:
    return torch.arange(4.0) + 10 * rank


def pieces(rank: int) -> list[torch.Tensor]:
    return list(whole(rank).chunk(N))


def called(group: Any, method: str, rank: int, make: Make) -> list[torch.Tensor]:
    """The operation on tensors that `make` puts somewhere: what it gave this rank."""
    x, parts = make(whole(rank)), [make(piece) for piece in pieces(rank)]
    empty, room, rooms = make(torch.zeros(4)), make(torch.zeros(8)), [make(torch.zeros(4)) for _ in range(N)]
    small, smalls = make(torch.zeros(2)), [make(torch.zeros(2)) for _ in range(N)]
    gather, scatter = c10d.GatherOptions(), c10d.ScatterOptions()
    gather.rootRank = scatter.rootRank = 1
    there, root = 1 - rank, rank == 1
    asked: dict[str, tuple[tuple[Any, ...], list[torch.Tensor]]] = {
        "broadcast": (([x], c10d.BroadcastOptions()), [x]),
        "allreduce": (([x], c10d.AllreduceOptions()), [x]),
        "allreduce_coalesced": ((parts, c10d.AllreduceCoalescedOptions()), parts),
        "reduce": (([x], c10d.ReduceOptions()), [x] if rank == 0 else []),
        "allgather": (([rooms], [x], c10d.AllgatherOptions()), rooms),
        "allgather_coalesced": (([[room] for room in rooms], [x], c10d.AllgatherOptions()), rooms),
        "_allgather_base": ((room, x, c10d.AllgatherOptions()), [room]),
        "allgather_into_tensor_coalesced": (([room], [x], c10d.AllgatherOptions()), [room]),
        "gather": (([rooms] if root else [], [x], gather), rooms if root else []),
        "scatter": (([small], [parts] if root else [], scatter), [small]),
        "reduce_scatter": (([small], [parts], c10d.ReduceScatterOptions()), [small]),
        "_reduce_scatter_base": ((small, x, c10d.ReduceScatterOptions()), [small]),
        "reduce_scatter_tensor_coalesced": (([small], [x], c10d.ReduceScatterOptions()), [small]),
        "alltoall": ((smalls, parts, c10d.AllToAllOptions()), smalls),
        "alltoall_base": ((empty, x, [], [], c10d.AllToAllOptions()), [empty]),
    }
    if method in ("send", "recv"):
        works = [group.send([x], there, 7), group.recv([empty], there, 7)]
        given = [empty]
    else:
        arguments, given = asked[method]
        works = [getattr(group, method)(*arguments)]
    for work in works:
        work.wait()
    return given


def both_ways(method: str) -> tuple[list[list[float]], list[list[float]]]:
    """On the CPU, and staged."""
    world, rank = cast("Any", dist.group.WORLD), dist.get_rank()
    expected = [tensor.tolist() for tensor in called(world, method, rank, torch.clone)]
    with Device():
        staged = StagedGroup(world, Cpu(DEVICE))
        results = called(staged, method, rank, lambda tensor: OnDevice(tensor.clone()))
        assert all(isinstance(tensor, OnDevice) for tensor in results)
        return expected, [tensor.tolist() for tensor in results]


def futures() -> tuple[list[float], list[float], bool]:
    """A future's value lies on the device; a question is answered; what a graph has saved is not seen to change."""
    with Device():
        staged: Any = StagedGroup(cast("Any", dist.group.WORLD), Cpu(DEVICE))
        x = OnDevice(whole(dist.get_rank()))
        version = x._version
        (from_future,) = staged.allreduce([x]).get_future().wait()
        asked = staged.allreduce([x])
        while not asked.is_completed():
            continue
        return from_future.tolist(), x.tolist(), version == x._version


def refused() -> str:
    with Device():
        try:
            cast("Any", dist.group.WORLD).allreduce([OnDevice(whole(0))]).wait(timedelta(seconds=5))
        except RuntimeError as error:
            return str(error)
    return ""


def from_anywhere() -> tuple[list[float], int]:
    with Device():
        staged: Any = StagedGroup(cast("Any", dist.group.WORLD), Cpu(DEVICE))
        x = OnDevice(whole(dist.get_rank()))
        if dist.get_rank() == 0:
            staged.send([x], 1, 0).wait()
            return x.tolist(), 0
        work = staged.recv_anysource([x], 0)
        work.wait()
        return x.tolist(), work._source_rank()


@pytest.fixture(scope="module")
def two() -> Any:
    with gloo.world(N) as world:
        yield world


@pytest.mark.parametrize("method", METHODS)
def test_every_operation_gives_on_a_device_what_it_gives_on_the_cpu(two: gloo.World, method: str) -> None:
    for expected, result in two.run(both_ways, method):
        assert result == expected


def test_gloo_itself_refuses_them(two: gloo.World) -> None:
    assert all(two.run(refused))


def test_what_is_not_waited_for_comes_too(two: gloo.World) -> None:
    once = (whole(0) + whole(1)).tolist()
    twice = [N * value for value in once]
    for from_future, asked, unseen in two.run(futures):
        assert asked == twice and from_future in (once, twice) and unseen


def test_a_receive_from_any_source_knows_its_sender(two: gloo.World) -> None:
    assert two.run(from_anywhere)[1] == (whole(0).tolist(), 0)
