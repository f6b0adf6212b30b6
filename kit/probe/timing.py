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


def _all_gather(whole: torch.Tensor, piece: torch.Tensor) -> object:
    # torch < 2.13 knows it by another name, which later ones warn of
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return gather(whole, piece)


def _reduce_scatter(whole: torch.Tensor, piece: torch.Tensor) -> object:
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    return scatter(piece, whole)


def _in_place(collective: Callable[..., object], **root: int) -> Callable[[int], Callable[[], object]]:
    return lambda count: partial(collective, torch.zeros(count), **root)


def _whole_and_piece(collective: Callable[..., object]) -> Callable[[int], Callable[[], object]]:
    return lambda count: partial(collective, torch.zeros(count), torch.zeros(count // dist.get_world_size()))


def _pieces_at_root(collective: Callable[..., object], **root: int) -> Callable[[int], Callable[[], object]]:
    def prepare(count: int) -> Callable[[], object]:
        piece, ranks = torch.zeros(count // dist.get_world_size()), dist.get_world_size()
        pieces = [torch.zeros_like(piece) for _ in range(ranks)] if dist.get_rank() == 0 else None
        return partial(collective, piece, pieces, **root)

    return prepare


def _all_to_all(count: int) -> Callable[[], object]:
    return partial(dist.all_to_all_single, torch.zeros(count), torch.zeros(count))


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
    "broadcast": _in_place(dist.broadcast, src=0),
    "reduce": _in_place(dist.reduce, dst=0),
    "gather": _pieces_at_root(dist.gather, dst=0),
    "scatter": _pieces_at_root(dist.scatter, src=0),
    "all_gather": _whole_and_piece(_all_gather),
    "reduce_scatter": _whole_and_piece(_reduce_scatter),
    "all_reduce": _in_place(dist.all_reduce),
    "all_to_all": _all_to_all,
}
TRIPS = {"send": 2}  # how often the buffer crosses the link in one call
