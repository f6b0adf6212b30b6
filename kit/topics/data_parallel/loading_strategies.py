"""How data reaches ranks: five ways to give each of N ranks its batches, and what each way costs.

Every strategy is a function that yields batches, (tokens, targets), each (B, T), without end; the tokens lie in files
(`kit.gpt.shards`). `measure_loading` runs all of them: what was read, what was sent, what was read twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from kit.gpt.data import Batch, Tokens, batches, random_batches
from kit.gpt.shards import ITEM, Shards, open_shards, part_of, shard_paths
from kit.tables import Rows, Table
from kit.trace.text import size_text

if TYPE_CHECKING:
    import numpy as np

    from kit.run.runner import Runner

Group = dist.ProcessGroup | None

# ------------------------------------------------------------------------------------------------- the strategies


def by_seed(
    tokens: Tokens, batch: int, block: int, seed: int, rank: int, device: torch.device | str = "cpu"
) -> Iterator[Batch]:
    """Every rank reads where it likes in all of the text, by a seed of its own.

    No rank needs to know of the others, nothing is sent; but nothing stops two ranks from reading the same tokens.
    """
    return random_batches(tokens, batch, block, seed=seed, rank=rank, device=device)


def by_sampler(
    tokens: Tokens, batch: int, block: int, seed: int, rank: int, n: int, device: torch.device | str = "cpu"
) -> Iterator[Batch]:
    """All ranks draw one order of all windows, and each takes every n-th batch of it.

    Nothing is sent, nothing is read twice in a pass; every rank must be able to open all of the text.
    """
    return batches(tokens, batch, block, seed=seed, rank=rank, ranks=n, device=device)


def by_file(own: Tokens, batch: int, block: int, seed: int, device: torch.device | str = "cpu") -> Iterator[Batch]:
    """Each rank opens files of its own (`own_files`) and never another's.

    Nothing is sent, nothing is read twice, and a parallel file system serves the ranks from different disks. How well
    the data are mixed was decided when the files were written.
    """
    return batches(own, batch, block, seed=seed, device=device)


def by_scatter(
    tokens: Tokens, batch: int, block: int, seed: int, group: Group = None, device: torch.device | str = "cpu"
) -> Iterator[Batch]:
    """The group's rank 0 reads for all of it and scatters: the others never touch a file, and wait.

    `tokens`: read on rank 0 alone. The members get the batches of `by_sampler`. `device`: one that the group's backend
    can send from.
    """
    draws: list[Iterator[Batch]] = []
    if dist.get_rank(group) == 0:
        n = dist.get_world_size()
        draws = [batches(tokens, batch, block, seed=seed, rank=r, ranks=n, device=device) for r in _members(group)]
    return _scattered(draws, batch, block, group, device)


def _scattered(
    draws: list[Iterator[Batch]], batch: int, block: int, group: Group, device: torch.device | str
) -> Iterator[Batch]:
    while True:
        parts = [_joined(next(draw)) for draw in draws]  # on rank 0: n x (B, T + 1)
        mine = torch.empty(batch, block + 1, dtype=torch.int32, device=device)  # (B, T + 1)
        dist.scatter(mine, parts or None, group=group, group_src=0)
        yield mine[:, :-1].long(), mine[:, 1:].long()  # 2 x (B, T)


def preloaded(coming: Iterator[Batch], ahead: int = 1) -> Iterator[Batch]:
    """The same batches, read by a thread up to `ahead` of them before they are asked for: while the step before runs.

    Works with every strategy that sends nothing. It hides reading behind computing where computing leaves the CPU free,
    as on a GPU, or where reading is waiting for a disk. Raises ValueError for fewer than one ahead.
    """
    if ahead < 1:
        raise ValueError(f"preloading reads at least one batch ahead, not {ahead}")
    return _preloaded(coming, ahead)


def _preloaded(coming: Iterator[Batch], ahead: int) -> Iterator[Batch]:
    with ThreadPoolExecutor(1) as reader:  # one thread: batches keep their order
        asked = deque(reader.submit(next, coming, None) for _ in range(ahead))
        while (batch := asked.popleft().result()) is not None:
            asked.append(reader.submit(next, coming, None))
            yield batch


def own_files(folder: str | Path, rank: int, n: int) -> Shards:
    """The tokens of the files that are this rank's: of F files in the order of their names, F/n that lie together.

    Raises ValueError for fewer files than ranks.
    """
    paths = shard_paths(folder)
    if len(paths) < n:
        raise ValueError(
            f"{len(paths)} files in {folder} are too few for {n} ranks: write smaller shards, or use a sampler"
        )
    own = part_of(len(paths), rank, n)
    return Shards(paths[own.start : own.stop])


def reader_groups(readers: int) -> Group:
    """The group of this rank, where so many ranks read, each for as many others as the rest: call it on all ranks.

    Of n ranks in their order; the first of each group reads. Raises ValueError for more readers than ranks.
    """
    n = dist.get_world_size()
    if not 1 <= readers <= n:
        raise ValueError(f"of {n} ranks 1 to {n} can read, not {readers}")
    mine: Group = None
    for reader in range(readers):
        members = list(part_of(n, reader, readers))
        made = dist.new_group(members)  # every rank makes every group, in the same order
        mine = made if dist.get_rank() in members else mine
    return mine


def _members(group: Group) -> Sequence[int]:
    return range(dist.get_world_size()) if group is None else dist.get_process_group_ranks(group)


def _joined(batch: Batch) -> torch.Tensor:
    """Tokens and targets (B, T) as the windows they were cut from (B, T + 1), in 32 bits: gloo sends no 16."""
    tokens, targets = batch
    return torch.cat([tokens, targets[:, -1:]], dim=1).int()  # (B, T + 1)


# ------------------------------------------------------------------------------------------------- side by side


@dataclass(frozen=True, slots=True)
class Strategy:
    """What it means, and how a rank begins: begin(tokens, batch, block, seed, readers)."""

    meaning: str
    begin: Callable[[Tokens, int, int, int, int], Iterator[Batch]]
    own_files: bool = False  # a rank opens files of its own only


def _sampled(tokens: Tokens, batch: int, block: int, seed: int, readers: int) -> Iterator[Batch]:
    return by_sampler(tokens, batch, block, seed, dist.get_rank(), dist.get_world_size())


STRATEGIES = {
    "seeds": Strategy(
        "every rank reads anywhere in the text, by a seed of its own",
        lambda tokens, batch, block, seed, readers: by_seed(tokens, batch, block, seed, dist.get_rank()),
    ),
    "sampler": Strategy("one order of all windows for all, each rank takes every n-th batch", _sampled),
    "files": Strategy(
        "every rank has files of its own",
        lambda tokens, batch, block, seed, readers: by_file(tokens, batch, block, seed),
        own_files=True,
    ),
    "scatter": Strategy(
        "some ranks read, and scatter to the others",
        lambda tokens, batch, block, seed, readers: by_scatter(tokens, batch, block, seed, reader_groups(readers)),
    ),
    "preload": Strategy("as sampler, and a thread reads one batch ahead", lambda *how: preloaded(_sampled(*how))),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One strategy; tuples go by rank. Bytes are those of all steps together."""

    strategy: str
    bytes_read: tuple[int, ...]  # the last targets included
    bytes_sent: tuple[int, ...]
    waited: tuple[float, ...]  # s for a batch, the median of the steps
    repeated: float  # the part of all tokens read that some rank had read before


@dataclass(frozen=True, repr=False)
class Comparison(Table):
    """A row for each strategy, read as a table with a sentence for each."""

    rows: tuple[Row, ...]
    steps: int
    notes: tuple[str, ...] = ()

    def of(self, strategy: str) -> Row:
        """The row of one strategy. Raises ValueError for one that was not run."""
        found = [row for row in self.rows if row.strategy == strategy]
        if not found:
            raise ValueError(f"{strategy!r} was not run: choose from {', '.join(row.strategy for row in self.rows)}")
        return found[0]

    def table(self) -> tuple[str, Rows, Sequence[str]]:
        head = ("way", "reads", "sends", "again", "waits")
        title = f"{len(self.rows[0].waited)} ranks, {self.steps} steps: bytes of all steps on each rank; a batch's wait"
        meanings = [f"{row.strategy}: {STRATEGIES[row.strategy].meaning}." for row in self.rows]
        return title, [head, *(_cells(row) for row in self.rows)], [*meanings, *self.notes]


def measure_loading(
    cluster: Runner,
    folder: str | Path,
    batch: int,
    block: int,
    steps: int = 8,
    *,
    seed: int = 0,
    readers: int = 1,
    work: float = 0.0,
    delay: float = 0.0,
    strategies: Sequence[str] = tuple(STRATEGIES),
) -> Comparison:
    """Runs each strategy once for so many steps on all ranks of the cluster, from the shards in `folder`.

    readers: how many ranks read in 'scatter'. work: seconds of a step for which a rank pauses, as it does while a GPU
    computes. delay: seconds by which each window comes later than from this machine's files, as from a disk far away.
    Both are played with a pause, and the table says so. Raises ValueError for an unknown strategy, and for none.
    """
    unknown = [name for name in strategies if name not in STRATEGIES]
    if unknown or not strategies:
        wrong = f"no strategy is called {unknown[0]!r}" if unknown else "there is nothing to compare"
        raise ValueError(f"{wrong}: choose from {', '.join(STRATEGIES)}")
    rows = []
    for name in strategies:
        how = (name, Path(folder), batch, block, steps, seed, readers, work, delay)
        run = cluster.record(read_on_rank, *how)
        places, bytes_read, waited = zip(*run.results, strict=True)
        sent = (run.trace.bytes_sent(rank) for rank in range(cluster.size))
        rows.append(
            Row(
                name,
                bytes_read,
                tuple(round(one.algorithmic + one.wire) for one in sent),
                tuple(median(times) for times in waited),
                _repeated([place for of_rank in places for place in of_rank], block),
            )
        )
    notes = []
    if work:
        notes.append(f"Computing is played by a pause of {work * 1e3:g} ms in each step.")
    if delay:
        notes.append(f"A slow file system is played by a pause of {delay * 1e3:g} ms for each window.")
    return Comparison(tuple(rows), steps, tuple(notes))


def read_on_rank(
    strategy: str, folder: Path, batch: int, block: int, steps: int, seed: int, readers: int, work: float, delay: float
) -> tuple[tuple[int, ...], int, tuple[float, ...]]:
    """Takes `steps` batches by one strategy on this rank, pausing for `work` seconds after each.

    Returns where in the whole text each window began that was read, the bytes that were read, and the seconds that each
    step waited for its batch: plain numbers, which a recording can keep.
    """
    chosen = STRATEGIES[strategy]
    tokens = _Logged(*_opened(folder, chosen.own_files), delay)
    coming = chosen.begin(tokens, batch, block, seed, readers)
    waited = []
    for _ in range(steps):
        began = perf_counter()
        next(coming)
        waited.append(perf_counter() - began)
        sleep(work)
    if isinstance(coming, Generator):
        coming.close()  # a thread that reads ahead ends what it has begun
    return tuple(tokens.places), tokens.nbytes, tuple(waited)


def _opened(folder: Path, own: bool) -> tuple[Shards, int]:
    """The files that this rank opens, and how many tokens of the text lie in files before them."""
    if not own:
        return open_shards(folder), 0
    mine = own_files(folder, dist.get_rank(), dist.get_world_size())
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


def _repeated(places: Sequence[int], block: int) -> float:
    """The part of all tokens read that had been read before, of windows that began at `places`."""
    distinct = len({token for place in places for token in range(place, place + block)})
    return 1 - distinct / (len(places) * block)


def _cells(row: Row) -> tuple[str, ...]:
    waits = sorted(row.waited)
    return (
        row.strategy,
        _by_rank(row.bytes_read),
        _by_rank(row.bytes_sent),
        f"{row.repeated:.1%}",
        f"{waits[0] * 1e3:.1f}–{waits[-1] * 1e3:.1f} ms",
    )


def _by_rank(nbytes: Sequence[int]) -> str:
    """One figure where ranks are alike, else those of the ranks that have any."""
    if len(set(nbytes)) == 1:
        return size_text(nbytes[0])
    return ", ".join(f"rank {rank}: {size_text(one)}" for rank, one in enumerate(nbytes) if one)
