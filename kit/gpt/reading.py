"""How data reaches ranks: five ways to give each of N ranks its batches, and what each way costs.

Every way is a function that yields batches, (tokens, targets), each (B, T), without end; the tokens lie in files
(`kit.gpt.shards`). `kit.gpt.ways.compare` runs all of them: what was read, what was sent, what was read twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist

from kit.gpt.data import Batch, Tokens, batches, random_batches
from kit.gpt.shards import Shards, shard_paths
from kit.parallel.chunks import chunk_sizes

Group = dist.ProcessGroup | None


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

    Works on any of the ways that send nothing. It hides reading behind computing where computing leaves the CPU free,
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
    if not 0 <= rank < n:
        raise ValueError(f"rank {rank} is none of {n} ranks: they go from 0 to {n - 1}")
    sizes = chunk_sizes(len(paths), n)
    first = sum(sizes[:rank])
    return Shards(paths[first : first + sizes[rank]])


def reader_groups(readers: int) -> Group:
    """The group of this rank, where so many ranks read, each for as many others as the rest: call it on all ranks.

    Of n ranks in their order; the first of each group reads. Raises ValueError for more readers than ranks.
    """
    n = dist.get_world_size()
    if not 1 <= readers <= n:
        raise ValueError(f"of {n} ranks 1 to {n} can read, not {readers}")
    mine: Group = None
    first = 0
    for size in chunk_sizes(n, readers):
        members = list(range(first, first + size))
        made = dist.new_group(members)  # every rank makes every group, in the same order
        mine = made if dist.get_rank() in members else mine
        first += size
    return mine


def _members(group: Group) -> Sequence[int]:
    return range(dist.get_world_size()) if group is None else dist.get_process_group_ranks(group)


def _joined(batch: Batch) -> torch.Tensor:
    """Tokens and targets (B, T) as the windows they were cut from (B, T + 1), in 32 bits: gloo sends no 16."""
    tokens, targets = batch
    return torch.cat([tokens, targets[:, -1:]], dim=1).int()  # (B, T + 1)
