"""Timing one collective on this rank, with nobody looking on: what a plain script would pay.

Runs inside a recorded function. While it times, the group's calls go straight to the real one: noting an operation
takes a rank longer than gloo needs for a small message, and would be read as the link's latency. What remains is about
4 µs for the way through Python. Only a throttled link (`kit.link`) stays, since one wants to measure it then.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from kit.probe.backend import ObservedGroup

ITEM = 4  # bytes of a float32


def time_collective(operation: str, nbytes: int, repeats: int, warm_up: int) -> list[tuple[float, float]]:
    """When each of `repeats` calls began and ended on this rank, after `warm_up` calls that do not count.

    operation: a name of `PREPARE`. nbytes: the whole buffer S, a multiple of 4 bytes x n. All ranks call it alike; a
    barrier comes before each call. Seconds of the clock that all processes of a host share. On a GPU a call begins with
    its launch and ends when the device has finished.
    """
    call = PREPARE[operation](nbytes // ITEM)
    for _ in range(warm_up):
        call()
    times = []
    world = dist.group.WORLD
    assert isinstance(world, ObservedGroup), "every rank's default group is one"
    with world.unobserved():
        for _ in range(repeats):
            _settle()
            dist.barrier()
            _settle()
            began = time.perf_counter()
            call()
            _settle()
            times.append((began, time.perf_counter()))
    return times


def _settle() -> None:
    """A GPU runs ahead of Python: wait for it."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _broadcast(count: int) -> Callable[[], object]:
    x = torch.zeros(count)
    return lambda: dist.broadcast(x, src=0)


def _reduce(count: int) -> Callable[[], object]:
    x = torch.zeros(count)
    return lambda: dist.reduce(x, dst=0)


def _all_reduce(count: int) -> Callable[[], object]:
    x = torch.zeros(count)
    return lambda: dist.all_reduce(x)


def _all_gather(count: int) -> Callable[[], object]:
    whole, piece = torch.zeros(count), torch.zeros(count // dist.get_world_size())
    # torch < 2.13 knows it by another name, which later ones warn of
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return lambda: gather(whole, piece)


def _reduce_scatter(count: int) -> Callable[[], object]:
    whole, piece = torch.zeros(count), torch.zeros(count // dist.get_world_size())
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    return lambda: scatter(piece, whole)


def _all_to_all(count: int) -> Callable[[], object]:
    out, into = torch.zeros(count), torch.zeros(count)
    return lambda: dist.all_to_all_single(into, out)


def _gather(count: int) -> Callable[[], object]:
    piece = torch.zeros(count // dist.get_world_size())
    parts = [torch.zeros_like(piece) for _ in range(dist.get_world_size())] if dist.get_rank() == 0 else None
    return lambda: dist.gather(piece, parts, dst=0)


def _scatter(count: int) -> Callable[[], object]:
    piece = torch.zeros(count // dist.get_world_size())
    parts = [torch.zeros_like(piece) for _ in range(dist.get_world_size())] if dist.get_rank() == 0 else None
    return lambda: dist.scatter(piece, parts, src=0)


def _send(count: int) -> Callable[[], object]:
    """From rank 0 to rank 1 and back; the others go on to the next barrier."""
    ball, rank = torch.zeros(count), dist.get_rank()

    def there_and_back() -> None:
        if rank == 0:
            dist.send(ball, 1)
            dist.recv(ball, 1)
        elif rank == 1:
            dist.recv(ball, 0)
            dist.send(ball, 0)

    return there_and_back


PREPARE: dict[str, Callable[[int], Callable[[], object]]] = {
    "send": _send,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "gather": _gather,
    "scatter": _scatter,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_reduce": _all_reduce,
    "all_to_all": _all_to_all,
}
TRIPS = {"send": 2}  # how often the buffer crosses the link in one call
