"""The five ways of `kit.gpt.reading` side by side: bytes read and sent by each rank, tokens read twice, time waited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any, Protocol

import numpy as np
import torch.distributed as dist

from kit.gpt.reading import by_file, by_sampler, by_scatter, by_seed, own_files, preloaded, reader_groups
from kit.gpt.shards import ITEM, Shards, open_shards, shard_paths

WAYS = {
    "seeds": "every rank reads anywhere in the text, by a seed of its own",
    "sampler": "one order of all windows for all, each rank takes every n-th batch",
    "files": "every rank has files of its own",
    "scatter": "some ranks read, and scatter to the others",
    "preload": "as sampler, and a thread reads one batch ahead",
}


@dataclass(frozen=True, slots=True)
class Read:
    """What one rank did."""

    places: tuple[int, ...]  # of the first token of each window it read, in the whole text
    nbytes: int  # read, the last targets included
    waited: tuple[float, ...]  # seconds for the batch of each step


@dataclass(frozen=True, slots=True)
class Row:
    """One way; tuples go by rank. Bytes are those of all steps together."""

    way: str
    bytes_read: tuple[int, ...]
    bytes_sent: tuple[int, ...]
    waited: tuple[float, ...]  # s for a batch, the median of the steps
    repeated: float  # the share of all tokens read that some rank had read before


@dataclass(frozen=True)
class Ways:
    """The ways, a row for each. `str()` is a table with a sentence for each way."""

    rows: tuple[Row, ...]
    steps: int
    notes: tuple[str, ...] = ()

    def of(self, way: str) -> Row:
        """The row of one way. Raises ValueError for one that was not run."""
        found = [row for row in self.rows if row.way == way]
        if not found:
            raise ValueError(f"{way!r} was not run; there is {', '.join(row.way for row in self.rows)}")
        return found[0]

    def __str__(self) -> str:
        head = ("way", "read by each rank", "sent by each rank", "read again", "wait for a batch")
        cells = [head, *(_cells(row) for row in self.rows)]
        widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
        table = ["  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in cells]
        meant = [f"{row.way}: {WAYS[row.way]}." for row in self.rows]
        title = f"{len(self.rows[0].waited)} ranks, {self.steps} steps; bytes of all steps, waits of one"
        return "\n".join([title, *table, *meant, *self.notes])

    __repr__ = __str__


class Cluster(Protocol):
    """What is needed of a cluster."""

    @property
    def size(self) -> int: ...
    def record_on(self, ranks: int, function: Callable[..., Any], *args: Any) -> Any: ...


def compare(
    cluster: Cluster,
    folder: str | Path,
    batch: int,
    block: int,
    steps: int = 8,
    *,
    seed: int = 0,
    readers: int = 1,
    work: float = 0.0,
    delay: float = 0.0,
    ways: Sequence[str] = tuple(WAYS),
) -> Ways:
    """Runs each way once for so many steps on all ranks of the cluster, from the shards in `folder`.

    readers: how many ranks read in 'scatter'. work: seconds of a step for which a rank pauses, as it does while a GPU
    computes. delay: seconds by which each window comes later than from this machine's files, as from a disk far away.
    Both are played with a pause, and the table says so. Raises ValueError for a way there is not.
    """
    unknown = [way for way in ways if way not in WAYS]
    if unknown or not ways:
        raise ValueError(f"{(*unknown, 'nothing')[0]!r} is no way to read: choose from {', '.join(WAYS)}")
    rows = []
    for way in ways:
        run = cluster.record_on(
            cluster.size, read_on_rank, way, Path(folder), batch, block, steps, seed, readers, work, delay
        )
        sent = (run.trace.bytes_sent(rank) for rank in range(cluster.size))
        reads = [Read(*found) for found in run.results]  # plain there, so that a recording can keep them
        rows.append(_row(way, reads, block, tuple(round(one.algorithmic + one.wire) for one in sent)))
    notes = []
    if work:
        notes.append(f"Computing is played by a pause of {work * 1e3:g} ms in each step.")
    if delay:
        notes.append(f"A slow file system is played by a pause of {delay * 1e3:g} ms for each window.")
    return Ways(tuple(rows), steps, tuple(notes))


def read_on_rank(
    way: str, folder: Path, batch: int, block: int, steps: int, seed: int, readers: int, work: float, delay: float
) -> tuple[tuple[int, ...], int, tuple[float, ...]]:
    """Takes `steps` batches by one way on this rank, pausing for `work` seconds after each: the fields of a `Read`."""
    rank, n = dist.get_rank(), dist.get_world_size()
    tokens = _Logged(*_opened(way, folder, rank, n), delay)
    coming: Any
    if way == "seeds":
        coming = by_seed(tokens, batch, block, seed, rank)
    elif way == "files":
        coming = by_file(tokens, batch, block, seed)
    elif way == "scatter":
        coming = by_scatter(tokens, batch, block, seed, reader_groups(readers))
    else:
        coming = by_sampler(tokens, batch, block, seed, rank, n)
        coming = preloaded(coming) if way == "preload" else coming
    waited = []
    for _ in range(steps):
        began = perf_counter()
        next(coming)
        waited.append(perf_counter() - began)
        sleep(work)
    coming.close()  # a thread that reads ahead ends what it has begun
    return tuple(tokens.places), tokens.nbytes, tuple(waited)


def _opened(way: str, folder: str | Path, rank: int, n: int) -> tuple[Shards, int]:
    """The files that this rank opens, and how many tokens of the text lie in files before them."""
    if way != "files":
        return open_shards(folder), 0
    mine = own_files(folder, rank, n)
    earlier = (path for path in shard_paths(folder) if path < mine.paths[0])
    return mine, sum(path.stat().st_size for path in earlier) // ITEM.itemsize


class _Logged:
    """Shards that note what is read of them, and hand it out late."""

    def __init__(self, shards: Shards, before: int, delay: float) -> None:
        self.shards, self.before, self.delay = shards, before, delay
        self.places: list[int] = []
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self.shards)

    def __getitem__(self, places: slice) -> np.ndarray:
        found = self.shards[places]
        self.places.append(self.before + places.indices(len(self))[0])
        self.nbytes += found.nbytes
        sleep(self.delay)
        return found


def _row(way: str, reads: Sequence[Read], block: int, sent: tuple[int, ...]) -> Row:
    places = [place for read in reads for place in read.places]
    distinct = len({token for place in places for token in range(place, place + block)})
    return Row(
        way,
        tuple(read.nbytes for read in reads),
        sent,
        tuple(median(read.waited) for read in reads),
        1 - distinct / (len(places) * block),
    )


def _cells(row: Row) -> tuple[str, ...]:
    waits = sorted(row.waited)
    return (
        row.way,
        _by_rank(row.bytes_read),
        _by_rank(row.bytes_sent),
        f"{row.repeated:.1%}",
        f"{waits[0] * 1e3:.1f} to {waits[-1] * 1e3:.1f} ms",
    )


def _by_rank(nbytes: Sequence[int]) -> str:
    """One figure where ranks are alike, all of them where they are not."""
    return f"{nbytes[0]:,} B" if len(set(nbytes)) == 1 else " / ".join(f"{one:,}" for one in nbytes) + " B"
