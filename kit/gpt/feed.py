"""Which windows of a text a step is trained on: the same ones whatever the number of ranks, and after a resume.

Letters: T tokens of a window, B windows of a micro-batch. `kit.gpt.data.batches` deals out to ranks that go on by
themselves; here a step asks for what is its own, so that where one stands in the data is a single number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from kit.gpt.data import Batch, Tokens, check_rank, windows


@dataclass(frozen=True)
class Feed:
    """A text as an endless row of windows of T = `block` tokens, numbered from 0.

    Each pass over the text cuts it elsewhere and shuffles it by (seed, pass), so a window is always the same one, and
    within a pass no token is seen twice. Raises ValueError for a text without a window.
    """

    tokens: Tokens
    block: int  # T
    seed: int = 0

    def __post_init__(self) -> None:
        if self.block < 1:
            raise ValueError(f"a window has at least one token, not {self.block}")
        if self.in_a_pass < 1:
            raise ValueError(
                f"a text of {len(self.tokens)} tokens has no window of {self.block} and its last target, wherever it"
                " begins: use a longer text or a shorter block"
            )

    @property
    def in_a_pass(self) -> int:
        """Windows that one pass over the text has, wherever the first one begins."""
        return (len(self.tokens) - self.block) // self.block

    def starts(self, first: int, count: int) -> list[int]:
        """Where in the text the windows `first`, `first` + 1, ... begin."""
        found = []
        for number in range(first, first + count):
            one_pass, place = divmod(number, self.in_a_pass)
            found.append(int(_dealt(self.seed, one_pass, self.block, self.in_a_pass)[place]))
        return found

    def micro_batches(
        self, first: int, count: int, batch: int, *, part: int = 0, parts: int = 1, device: torch.device | str = "cpu"
    ) -> list[Batch]:
        """One of `parts` equal shares of the windows `first` to `first` + `count`, in micro-batches of `batch` windows.

        Neighbours go to different parts micro-batch by micro-batch, so together the parts see every window once; only
        those of this part are read. Raises ValueError for a count that does not divide.
        """
        check_rank(part, parts)
        if count < 1 or count % (batch * parts):
            raise ValueError(f"{count} windows are not a number of micro-batches of {batch} for each of {parts} parts")
        begins = range(first + part * batch, first + count, batch * parts)
        return [windows(self.tokens, self.starts(begin, batch), self.block, device) for begin in begins]


@lru_cache(maxsize=4)  # a training's and a validation's pass, and the next ones
def _dealt(seed: int, one_pass: int, block: int, count: int) -> np.ndarray:
    draw = np.random.default_rng([seed, one_pass])
    starts: np.ndarray = draw.integers(block) + block * draw.permutation(count)  # (windows,)
    return starts
