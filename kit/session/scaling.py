"""The scaling curve: the same work on one rank, on two, on all, timed inside the ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kit.cost.scaling import MODES, Mode, Point, Scaling


class Recorder(Protocol):
    """What is needed of a cluster."""

    @property
    def size(self) -> int: ...
    @property
    def devices(self) -> Sequence[str]: ...
    def record_on(self, ranks: int, function: Callable[..., Any], *args: Any) -> Any: ...


def scaling(
    cluster: Recorder,
    work: Callable[..., tuple[int, Sequence[float], int]],
    batch: int,
    *args: Any,
    mode: Mode = "weak",
    ranks: Sequence[int] | None = None,
) -> Scaling:
    """Runs `work(batch of this rank, *args)` on the first k ranks, for each k of `ranks`, and compares.

    work: returns (tokens of a step, seconds of each step, threads), as `kit.gpt.timing.timed_training` does. batch: of
    each rank for 'weak'; of all together for 'strong', so each of k ranks gets batch / k. ranks: None takes 1, 2, 4 and
    so on, and the whole cluster; for 'strong', those that divide the batch. A step ends with its slowest rank.

    Raises ValueError for a mode there is not, ranks the cluster has not, and a strong batch that k ranks cannot share.
    """
    if mode not in MODES:
        raise ValueError(f"mode is 'strong' (one batch, shared) or 'weak' (as much for each rank), not {mode!r}")
    counts = _counts(cluster.size, batch, mode) if ranks is None else tuple(ranks)
    _check(counts, cluster.size, batch, mode)
    points, threads = [], 1
    for k in counts:
        found = cluster.record_on(k, work, batch // k if mode == "strong" else batch, *args).results
        tokens = sum(one[0] for one in found)
        times = tuple(max(step) for step in zip(*(one[1] for one in found), strict=True))
        points.append(Point(k, tokens, times))
        threads = max(threads, *(one[2] for one in found))
    return Scaling(mode, tuple(points), _cores(cluster.devices), threads, notes=_notes(cluster.devices))


def _cores(devices: Sequence[str]) -> int | None:
    """Of this host, where ranks compute on its CPU."""
    return len(os.sched_getaffinity(0)) if set(devices) == {"cpu"} else None


def _notes(devices: Sequence[str]) -> tuple[str, ...]:
    used = len(set(devices))
    if set(devices) == {"cpu"} or used == len(devices):
        return ()
    return (f"{len(devices)} ranks share {used} accelerators: beyond {used} ranks they take turns.",)


def _counts(size: int, batch: int, mode: Mode) -> tuple[int, ...]:
    doubled = {2**i for i in range(size.bit_length()) if 2**i <= size} | {size}
    return tuple(sorted(k for k in doubled if mode == "weak" or batch % k == 0))


def _check(counts: Sequence[int], size: int, batch: int, mode: Mode) -> None:
    if not counts or list(counts) != sorted(set(counts)) or not 1 <= counts[0] <= counts[-1] <= size:
        raise ValueError(f"ranks are different numbers from 1 to {size}, the smallest first, not {list(counts)}")
    uneven = [k for k in counts if mode == "strong" and batch % k]
    if uneven or batch < 1:
        raise ValueError(
            f"a batch of {batch} cannot be shared evenly by {(uneven or counts)[0]} ranks: choose a multiple"
        )
