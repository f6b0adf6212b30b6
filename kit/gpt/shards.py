"""Tokens on disk: flat files of uint16, memory-mapped, of which every rank reads a part of its own.

A file is nothing but its tokens, two bytes each, the low one first; several files, in the order of their names, are one
long row. Nothing is read before a slice is taken, so a row may be larger than the memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from kit.gpt.data import Tokens, check_rank

ITEM = np.dtype("<u2")
_NAME = "tokens_{:05d}.bin"


def write_shards(tokens: Tokens, folder: str | Path, size: int) -> Shards:
    """Writes tokens as files of `size` tokens, the last one shorter if need be.

    Raises ValueError for a token that 16 bits do not hold, for no tokens, a size below 1, or a folder with shards.
    """
    target = Path(folder)
    if size < 1 or not len(tokens):
        raise ValueError(f"a shard holds at least one token, not {size} of {len(tokens)}")
    if list(target.glob("tokens_*.bin")):
        raise ValueError(f"{target} holds shards already: name an empty folder, or delete them first")
    target.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, len(tokens), size)):
        _as_uint16(np.asarray(tokens[start : start + size])).tofile(target / _NAME.format(number))
    return open_shards(target)


def open_shards(folder: str | Path) -> Shards:
    """The shards in a folder, by name, as one row. Raises ValueError for a folder without any."""
    return Shards(shard_paths(folder))


def shard_paths(folder: str | Path) -> list[Path]:
    """The files of a folder's shards, by name, unopened. Raises ValueError for a folder without any."""
    paths = sorted(Path(folder).glob("tokens_*.bin"))
    if not paths:
        raise ValueError(f"there are no files tokens_*.bin in {folder}: write_shards makes them")
    return paths


class Shards:
    """A row of tokens over several files: `len`, slices (numpy, uint16), and the part of each rank.

    Where files meet a slice goes on in the next one. Travels to ranks as its paths, not its tokens. Raises ValueError
    for a file that is not whole.
    """

    def __init__(self, paths: Sequence[str | Path], start: int = 0, stop: int | None = None) -> None:
        self.paths = tuple(Path(path) for path in paths)
        self._maps = [_mapped(path) for path in self.paths]
        self._ends = list(accumulate(len(one) for one in self._maps))  # of each file, in the whole row
        self.start, self.stop = start, self._ends[-1] if stop is None else stop
        if not 0 <= self.start <= self.stop <= self._ends[-1]:
            raise ValueError(f"these files hold {self._ends[-1]} tokens: there is no part from {start} to {stop}")

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, places: slice) -> np.ndarray:
        first, last, step = places.indices(len(self))
        if step != 1:
            raise ValueError("a slice of shards takes every token in turn: leave the step out")
        return self._read(self.start + first, self.start + max(first, last))

    def of_rank(self, rank: int, ranks: int) -> Shards:
        """The part of one of N ranks: no token is in two of them, none is left out, lengths differ by one at most.

        Raises ValueError for a rank outside 0 to N-1.
        """
        part = part_of(len(self), rank, ranks)
        return Shards(self.paths, self.start + part.start, self.start + part.stop)

    def __reduce__(self) -> tuple[Any, ...]:
        return Shards, (self.paths, self.start, self.stop)

    def __repr__(self) -> str:
        return f"Shards({len(self):,} tokens in {len(self.paths)} files)"

    def _read(self, start: int, stop: int) -> np.ndarray:
        parts = [np.empty(0, ITEM)]
        file = bisect_right(self._ends, start)
        while start < stop:
            begins = self._ends[file] - len(self._maps[file])
            end = min(stop, self._ends[file])
            parts.append(self._maps[file][start - begins : end - begins])
            start, file = end, file + 1
        return parts[1] if len(parts) == 2 else np.concatenate(parts)


def part_of(count: int, rank: int, ranks: int) -> range:
    """Which of `count` things in a row are one rank's of N: neighbours; lengths differ by one at most, long ones first.

    Raises ValueError for a rank outside 0 to N-1.
    """
    check_rank(rank, ranks)
    each, over = divmod(count, ranks)
    return range(rank * each + min(rank, over), (rank + 1) * each + min(rank + 1, over))


def _mapped(path: Path) -> np.ndarray:
    size = path.stat().st_size
    if size == 0 or size % ITEM.itemsize:
        raise ValueError(f"{path} has {size} bytes: a shard has two for each token; write it again")
    return np.memmap(path, dtype=ITEM, mode="r")


def _as_uint16(tokens: np.ndarray) -> np.ndarray:
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high > np.iinfo(ITEM).max:
        raise ValueError(f"16 bits hold 0 to 65535, and there is a token {low if low < 0 else high}")
    return tokens.astype(ITEM)
