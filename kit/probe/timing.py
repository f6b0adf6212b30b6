"""Timing one collective on this rank unobserved: what a plain script would pay.

Runs inside a recorded function. While it times, the group's calls go straight to the real one: noting an operation
takes a rank longer than gloo needs for a small message, and would be read as the link's latency. What remains is about
4 µs for the way through Python. Only a throttled link (`kit.link`) stays, since one wants to measure it then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist

from kit.probe.accelerator import Accelerator
from kit.probe.backend import ObservedGroup

ITEM = 4  # bytes of a float32
FEWEST, MOST, IN_A_BATCH = 5, 50, 10_000_000  # calls timed together on a device, at least, at most, and their bytes


def time_collective(operation: str, nbytes: int, repeats: int, warm_up: int) -> list[tuple[float, float]]:
    """When each of `repeats` calls began and ended on this rank, after `warm_up` calls that do not count.

    operation: as `prepared` knows it. nbytes: the whole buffer S, a multiple of 4 bytes x n. All ranks call it alike; a
    barrier comes before each call. Seconds of the clock that all processes of a host share.

    On a GPU launching a small message takes the host longer than sending it: there the device times a batch of calls,
    one after the other (`calls_of`), and what is given is the mean one, as from 0.0 on, in seconds of its own clock.
    """
    call = prepared(operation, nbytes // ITEM)
    for _ in range(warm_up):
        call()
    times = []
    world = dist.group.WORLD
    assert isinstance(world, ObservedGroup), "every rank's default group is one"
    accelerator = world.accelerator
    settle = accelerator.synchronize
    with world.unobserved():
        if world.native:
            return [(0.0, _batch(call, calls_of(nbytes), accelerator)) for _ in range(repeats)]
        for _ in range(repeats):
            settle()
            dist.barrier()
            settle()
            began = time.perf_counter()
            call()
            settle()
            times.append((began, time.perf_counter()))
    return times


def _batch(call: Callable[[], object], calls: int, accelerator: Accelerator) -> float:
    """Seconds of one of so many calls, by events on the device."""
    dist.barrier()
    accelerator.synchronize()
    began = accelerator.moment(timed=True)
    for _ in range(calls):
        call()
    ended = accelerator.moment(timed=True)
    ended.synchronize()
    return ended.since(began) * 1e-9 / calls


def calls_of(nbytes: int) -> int:
    """How many calls of a size are timed together: fewer the longer one takes."""
    return max(FEWEST, min(MOST, IN_A_BATCH // nbytes))


def free_memory() -> int | None:
    """Bytes that nobody holds on this rank's device; None where that is the host's memory."""
    world = dist.group.WORLD
    assert isinstance(world, ObservedGroup), "every rank's default group is one"
    return world.accelerator.free()


def prepared(operation: str, count: int) -> Callable[[], object]:
    """One call of a collective on `count` numbers, of which each rank has its share. ValueError for another name."""
    n, rank = dist.get_world_size(), dist.get_rank()
    whole = torch.zeros(count)
    match operation:
        case "send":
            return partial(_there_and_back, whole, rank)
        case "broadcast":
            return partial(dist.broadcast, whole, src=0)
        case "reduce":
            return partial(dist.reduce, whole, dst=0)
        case "all_reduce":
            return partial(dist.all_reduce, whole)
        case "all_to_all":
            return partial(dist.all_to_all_single, torch.zeros(count), whole)
    piece = torch.zeros(count // n)
    pieces = [torch.zeros_like(piece) for _ in range(n)] if rank == 0 else None
    match operation:  # torch < 2.13 knows the last two by other names, which later ones warn of
        case "gather":
            return partial(dist.gather, piece, pieces, dst=0)
        case "scatter":
            return partial(dist.scatter, piece, pieces, src=0)
        case "all_gather":
            return partial(getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor, whole, piece)
        case "reduce_scatter":
            return partial(getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor, piece, whole)
    raise ValueError(f"there is no way to time {operation!r}")


def _there_and_back(ball: torch.Tensor, rank: int) -> None:
    """From rank 0 to rank 1 and back; the others go on to the next barrier."""
    if rank == 0:
        dist.send(ball, 1)
        dist.recv(ball, 1)
    elif rank == 1:
        dist.recv(ball, 0)
        dist.send(ball, 0)


TRIPS = {"send": 2}  # how often the buffer crosses the link in one call
