"""The bandwidth sweep: every collective over sizes on the ranks of this cluster.

Each operation at each size is one run of its own on the ranks: so a Ctrl-C loses one of them and no more, and no more
than one buffer is held.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from numbers import Integral
from statistics import median
from typing import TYPE_CHECKING, Any

from kit.clusters.progress import Progress
from kit.clusters.system import memory
from kit.cost.sweep import Row, Sweep
from kit.run.call import Call
from kit.run.record import run
from kit.trace.text import size_text

if TYPE_CHECKING:
    from kit.clusters.cluster import Cluster
    from kit.run.runner import SweepPlan
    from kit.run.scheduler import RunScheduler

OPERATIONS = (
    "send",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all_gather",
    "reduce_scatter",
    "all_reduce",
    "all_to_all",
)
SIZES = (100, 1_000, 10_000, 40_000, 100_000, 400_000, 1_000_000, 4_000_000)  # bytes
LARGER = (16_000_000, 64_000_000, 256_000_000, 1_000_000_000)  # which links between GPUs need to be busy
ITEM = 4  # bytes of a float32, in which all is measured
COPIES = 4  # buffers of S bytes that a rank may hold at once: input, output, and what the library copies inside
SHARE = 0.5  # of the memory that is free
CONTAINS = (
    "Times: from the last rank's call to the last rank's end, after a barrier; nothing is recorded meanwhile. "
    "send: half of there and back."
)
ON_DEVICE = (
    "Times: by events of the device, of many calls that follow each other, the slowest rank's; nothing is recorded "
    "meanwhile. send: half of there and back."
)


def sweep(scheduler: RunScheduler, asked: SweepPlan) -> Sweep:
    """See `kit.bandwidth`."""
    cluster = scheduler.cluster
    world = _world(cluster, asked.ranks)
    names = _operations(asked.operations)
    _count("repeats", asked.repeats, 1)
    _count("warm_up", asked.warm_up, 0)
    wanted = _sizes(asked.sizes, world)
    fits = _fits(cluster, world, _free(scheduler, world))
    if asked.sizes is None and cluster.backend != "gloo":
        wanted += tuple(size for size in _sizes(LARGER, world) if size <= fits)
    if max(wanted) > fits:
        raise ValueError(
            f"a buffer of {size_text(max(wanted))} needs up to {size_text(COPIES * max(wanted))} on each of {world} "
            f"ranks, more than is safe with the memory that is free: sizes up to {size_text(fits)} fit, or use fewer "
            "ranks"
        )
    plan = [(name, nbytes) for name in names for nbytes in wanted]
    rows, notes, progress = (
        [],
        [CONTAINS if cluster.backend == "gloo" else ON_DEVICE, *_shared(cluster.devices[:world])],
        Progress(),
    )
    started = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        for done, (name, nbytes) in enumerate(plan):
            progress.say(f"{_bar(done, len(plan))} {name} {size_text(nbytes)}")
            row, said = _measure(scheduler, name, world, nbytes, asked.repeats, asked.warm_up)
            rows.append(row)
            notes += [note for note in said if note not in notes]
        progress.done(f"{len(plan)} measurements on {world} ranks in {progress.seconds():.1f} s")
    except KeyboardInterrupt:
        if not rows:
            raise  # nothing was measured that could be kept
        short = f"Interrupted: {len(rows)} of {len(plan)} measurements are here."
        notes.insert(0, short)
        progress.done(short)
    return Sweep(
        ranks=world,
        backend=cluster.backend,
        devices=tuple(cluster.devices[:world]),
        rows=tuple(rows),
        repeats=asked.repeats,
        warm_up=asked.warm_up,
        started=started,
        software=f"{cluster.found.build}, Python {platform.python_version()}",
        notes=tuple(notes),
    )


def _shared(devices: Sequence[str]) -> tuple[str, ...]:
    """What more ranks than processors do to times."""
    processors = len(os.sched_getaffinity(0))
    if not 0 < processors < devices.count("cpu"):
        return ()
    return (
        f"{len(devices)} ranks share {processors} processors: a call of a small size waits for its turn or does not, "
        "so times are of two kinds, and their median can jump between them.",
    )


def _measure(
    scheduler: RunScheduler, name: str, world: int, nbytes: int, repeats: int, warm_up: int
) -> tuple[Row, tuple[str, ...]]:
    from kit.probe.timing import TRIPS, time_collective

    recording = run(scheduler, Call(time_collective, (name, nbytes, repeats, warm_up)), world)
    calls: list[list[tuple[float, float]]] = recording.results[:2] if name == "send" else recording.results
    trips = TRIPS.get(name, 1)
    # a call begins when the last rank is there: ranks leave a barrier one after the other, and that is not the link's
    times = tuple(
        (max(end for _, end in call) - max(begin for begin, _ in call)) / trips for call in zip(*calls, strict=True)
    )
    own = tuple(median((end - begin) / trips for begin, end in rank) for rank in calls)
    return Row(name, world, nbytes, times, own), recording.trace.meta.notes


def _world(cluster: Cluster, ranks: int | None) -> int:
    world: Any = cluster.size if ranks is None else ranks
    if not _whole(world) or not 2 <= world <= cluster.size:
        if cluster.size < 2:
            raise ValueError("a sweep needs at least 2 ranks to move bytes between: kit.cluster(ranks=2) after stop()")
        raise ValueError(f"ranks is a whole number from 2 to {cluster.size}, the size of this cluster, not {ranks!r}")
    return int(world)


def _operations(wanted: str | Sequence[str] | None) -> tuple[str, ...]:
    names = OPERATIONS if wanted is None else _listed(wanted)
    unknown = [name for name in names if name not in OPERATIONS]
    if unknown or not names:
        told = f"{unknown[0]!r} cannot be swept" if unknown else "name at least one operation"
        raise ValueError(f"{told}: choose from {', '.join(OPERATIONS)}")
    return tuple(dict.fromkeys(names))


def _sizes(wanted: int | Sequence[int] | None, world: int) -> tuple[int, ...]:
    """Whole buffers in bytes, each rounded up to what n ranks can share evenly, without doubles."""
    listed = SIZES if wanted is None else _listed(wanted)
    wrong = [size for size in listed if not _whole(size) or size < 1]
    if wrong or not listed:
        told = f"{wrong[0]!r} is no size" if wrong else "name at least one size"
        raise ValueError(f"{told}: sizes are whole numbers of bytes, 1 or more, for example sizes=[1_000, 1_000_000]")
    unit = ITEM * world
    return tuple(dict.fromkeys(unit * -(-int(size) // unit) for size in listed))


def _listed(wanted: Any) -> tuple[Any, ...]:
    """One thing or several, as several."""
    return tuple(wanted) if isinstance(wanted, Iterable) and not isinstance(wanted, str) else (wanted,)


def _count(name: str, value: Any, least: int) -> None:
    if not _whole(value) or value < least:
        raise ValueError(f"{name} is a whole number, {least} or more, not {value!r}")


def _whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _free(scheduler: RunScheduler, world: int) -> dict[str, int]:
    """Bytes that nobody holds on each of the ranks' devices, but for those that compute in the host's memory."""
    from kit.probe.timing import free_memory

    devices = scheduler.cluster.devices[:world]
    if set(devices) == {"cpu"}:
        return {}
    told = run(scheduler, Call(free_memory, (), {}), world).results
    return {device: free for device, free in zip(devices, told, strict=True) if free is not None}


def _fits(cluster: Cluster, world: int, free: Mapping[str, int]) -> int:
    """The largest buffer, in bytes, that leaves room on every device and, where data goes there, on the host."""
    devices = cluster.devices[:world]
    limits = [free[device] / devices.count(device) for device in devices if device in free]
    if len(limits) < world or cluster.backend == "gloo":  # gloo moves a GPU's data through the host's memory
        limits.append(memory()[1] / world)
    return int(min(limits) * SHARE / COPIES)


def _bar(done: int, of: int, width: int = 20) -> str:
    filled = round(width * done / of)
    return f"{'█' * filled}{'░' * (width - filled)} {done} of {of}"
