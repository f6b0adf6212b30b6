"""How a GPT is trained, apart from where: sizes of batches, the learning rate's shape, AdamW's numbers.

Letters: B windows of a micro-batch, T tokens of a window, m micro-batches, N parts into which ranks split the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, inf, pi
from typing import Literal


@dataclass(frozen=True)
class Recipe:
    """A recipe says the same to one rank and to a thousand: the tokens of a step are those of all ranks together.

    T. Brown and others, Language models are few-shot learners (2020), appendix B: betas, eps, decay, clipping, and a
    cosine to a tenth of the peak. Raises ValueError for numbers that make no sense.
    """

    steps: int = 500
    batch: int = 12  # B, on one rank at a time
    total_batch: int | None = None  # tokens of a step, of all ranks together; None: a micro-batch on each of the parts
    rate: float = 3e-3  # the peak
    warm_up: int = 20  # steps
    floor: float = 0.1  # of the peak, at the end
    optimizer: Literal["adamw", "muon"] = "adamw"  # muon: for matrices of blocks, and AdamW for the rest
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.1  # of matrices and embeddings
    clip: float = 1.0  # the norm of all gradients together
    validate_every: int = 100  # steps; 0: never
    validation: int = 20  # batches of a step's size that are looked at then: of two, the loss is off by 0.2
    seed: int = 0  # of weights, dropout and the order of the data

    def __post_init__(self) -> None:
        for name, least in {"steps": 1, "batch": 1, "validation": 1, "validate_every": 0, "warm_up": 0}.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least {least}")
        for name in ("rate", "floor", "eps", "weight_decay", "clip"):
            if not getattr(self, name) >= 0:  # NaN fails this too
                raise ValueError(f"{name} is 0 or more, not {getattr(self, name)!r}")
        if self.rate == inf:
            raise ValueError("rate is inf: no step is as large")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas are two shares that the past has, at least 0 and less than 1, not {self.betas}")
        if self.optimizer not in ("adamw", "muon"):
            raise ValueError(f"optimizer is {self.optimizer!r}: choose 'adamw' or 'muon'")
        self.rate_of(0)

    def rate_of(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        return cosine(step, peak=self.rate, steps=self.steps, warm_up=self.warm_up, floor=self.rate * self.floor)

    def micro_batches(self, block: int, parts: int = 1) -> int:
        """m: how many micro-batches of (B, T) each of N parts accumulates in a step.

        Raises ValueError where the total does not come out even, with the nearest total that does.
        """
        each = self.batch * block * parts  # tokens that all parts compute at a time
        if self.total_batch is None:
            return 1
        if self.total_batch < 1 or self.total_batch % each:
            nearest = max(1, round(self.total_batch / each)) * each
            raise ValueError(
                f"{self.total_batch:,} tokens in a step do not divide into micro-batches of {self.batch} x {block} on"
                f" each of {parts}: take {nearest:,}, or another batch"
            )
        return self.total_batch // each


def cosine(step: int, *, peak: float, steps: int, warm_up: int = 0, floor: float = 0.0) -> float:
    """The learning rate of a step, counted from 0: up to `peak` in `warm_up` even steps, then down to `floor`.

    The way down is half a cosine; it ends with the last of `steps`, and what comes later stays at `floor`. I.
    Loshchilov and F. Hutter, SGDR (2017), without restarts. Raises ValueError for a warm-up that takes all
    steps.
    """
    if not 0 <= warm_up < max(steps, 1):
        raise ValueError(f"a warm-up of {warm_up} steps does not fit in {steps}: leave some to come down in")
    if step < warm_up:
        return peak * (step + 1) / warm_up
    done = min(1.0, (step - warm_up) / max(1, steps - 1 - warm_up))
    return floor + (peak - floor) * (1 + cos(pi * done)) / 2
