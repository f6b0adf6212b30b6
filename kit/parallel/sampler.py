"""Which samples are whose: every rank its own share of the data, no sample on two ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch.utils.data import Sampler


class ShareSampler(Sampler[int]):
    """Rank r's samples of `count`, in an order drawn anew for each epoch: in place of torch's DistributedSampler.

    All ranks draw one order, which is why `seed` must be the same on all of them, and rank r takes every n-th of it
    from the r-th on. So with B samples each, the ranks' k-th batches together are the k-th batch of n B of a single
    process. torch's own sampler hands some samples to two ranks where count does not divide by n; this one does not.

    rest: what to do with the count % n samples that are over. "drop" leaves them out, in each epoch others: all ranks
    get count // n and take the same number of steps, as training needs. "keep" gives them to the first ranks, one
    each: nothing is lost, as an evaluation needs, but other ranks have a sample less, or none at all.

    Raises ValueError for a count that is none, a rank there is not, and for fewer samples than ranks where the rest is
    dropped.
    """

    def __init__(
        self,
        count: int,
        rank: int,
        n: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        rest: Literal["drop", "keep"] = "drop",
    ) -> None:
        if not isinstance(count, int) or count < 0:
            raise ValueError(f"count is how many samples there are, a whole number: len(dataset), not {count!r}")
        if not 0 <= rank < n:
            raise ValueError(f"rank {rank} is none of {n} ranks: they go from 0 to {n - 1}")
        if rest not in ("drop", "keep"):
            raise ValueError(f"rest={rest!r}: choose 'drop' or 'keep'")
        if rest == "drop" and count < n:
            raise ValueError(f"{count} samples cannot be shared by {n} ranks: take fewer ranks, or rest='keep'")
        self.count, self.rank, self.n = count, rank, n
        self.shuffle, self.seed, self.epoch = shuffle, seed, 0
        self.shared = count - count % n if rest == "drop" else count

    def set_epoch(self, epoch: int) -> None:
        """The order of this epoch: call it on all ranks, or every epoch is like the first."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        order = list(range(self.count))
        if self.shuffle:
            generator = torch.Generator().manual_seed(self.seed + self.epoch)
            order = torch.randperm(self.count, generator=generator, device="cpu").tolist()
        return iter(order[self.rank : self.shared : self.n])

    def __len__(self) -> int:
        return len(range(self.rank, self.shared, self.n))
