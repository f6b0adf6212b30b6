"""What a training's tensors were like, step by step: enough to say later where it parted from another.

A hash tells whether bits are the same. Ranks that add up in another order have other bits though nothing is wrong, so
beside it stand sums of the elements with signs by chance: two tensors whose sums are close are close.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import hypot, inf, isfinite
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from kit.gpt.hashing import hashes
from kit.gpt.trainer import StepReport, Trainer

SUMS = 8  # their mean square is that of the difference within a factor of 3, 99 times of 100 (chi-square of 8)
KINDS = {  # in the order in which a step makes them
    "loss": "the loss",
    "norm": "the norm of all gradients",
    "exp_avg": "the mean gradient of",
    "exp_avg_sq": "the mean squared gradient of",
    "rate": "the learning rate",
    "weight": "the parameter",
}
_RANK = "rank_{:05d}.jsonl"
_NONE = "{} has no hashes of a training: `lockstep train --hashes FOLDER` writes some"


@dataclass(frozen=True, slots=True)
class Print:
    """Of one tensor. sums: of its elements, with signs by chance that are the same for every tensor of its size."""

    hash: str
    sums: tuple[float, ...]

    @staticmethod
    def of(x: torch.Tensor) -> Print:
        signs = torch.Generator().manual_seed(x.numel())
        elements = x.detach().cpu().double().flatten()  # (P,)
        drawn = (torch.randint(2, elements.shape, generator=signs) * 2 - 1 for _ in range(SUMS))  # each (P,)
        return Print(hashes({"": x})[""], tuple(float(elements @ by.double()) for by in drawn))

    def apart(self, other: Print) -> float:
        """The size of the difference against that of the larger one, roughly."""
        difference = hypot(*(a - b for a, b in zip(self.sums, other.sums, strict=True)))
        found = difference / (max(hypot(*self.sums), hypot(*other.sums)) or 1.0)
        return found if isfinite(found) else inf


Prints = Mapping[str, Print]  # by kind and name, 'weight tokens.weight'
Moments = Mapping[int, Prints]  # by the number of steps that were taken before


def prints(trainer: Trainer, report: StepReport | None = None) -> dict[str, Print]:
    """What stands on this rank now; every rank calls, between two steps. report: of the step before."""
    numbers = {} if report is None else {"loss": report.loss, "norm": report.norm, "rate": report.rate}
    tensors = {name: torch.tensor(number, dtype=torch.float64) for name, number in numbers.items()}
    found = {name: Print.of(x) for name, x in {**tensors, **trainer.strategy.state()}.items()}
    return _as_made(found)


class Noting(Trainer):
    """A trainer that writes into a folder what its tensors are like, before its first step and after each.

    Each rank has a file there, and keeps on writing what it was before a resume. A step costs several times as much.
    """

    def __init__(self, folder: str | Path, *what: Any) -> None:
        super().__init__(*what)
        rank = dist.get_rank() if dist.is_initialized() else 0
        self._file = Path(folder) / _RANK.format(rank)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._noted = -1

    def step(self) -> StepReport:
        if self._noted != self.done:
            self._note()
        report = super().step()
        self._note(report)
        return report

    def _note(self, report: StepReport | None = None) -> None:
        found = {name: asdict(one) for name, one in prints(self, report).items()}
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"done": self.done, "prints": found}) + "\n")
        self._noted = self.done


def read_prints(folder: str | Path) -> list[Moments]:
    """What each rank has written. Raises ValueError for a folder without any, and for files of another kind."""
    found: list[Moments] = []
    for file in sorted(Path(folder).glob("rank_*.jsonl")):
        try:
            lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            found.append({line["done"]: _read(line["prints"]) for line in lines})
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(_NONE.format(file)) from error
    if not found:
        raise ValueError(_NONE.format(folder))
    return found


def _read(found: Mapping[str, Mapping[str, Any]]) -> Prints:
    return {name: Print(one["hash"], tuple(one["sums"])) for name, one in found.items()}


@dataclass(frozen=True, slots=True)
class Difference:
    """One tensor that two have otherwise. done: steps taken before; apart: how much, against its size."""

    name: str
    done: int
    apart: float

    def __str__(self) -> str:
        kind, _, of = self.name.partition(" ")
        when = f"after step {self.done}" if self.done else "before the first step"
        return f"{KINDS[kind]} {of}".rstrip() + f" is the first to differ, {when}, by {_share(self.apart)}"


def first_parted(ours: Moments, theirs: Moments, tolerance: float = 0.0) -> Difference | None:
    """What differs first by more than the tolerance, of that which both have; None where nothing does.

    With a tolerance, parameters are compared where both begin alone: AdamW divides by a gradient's own size, so where
    it is as small as rounding, so may the sign of a step be. A step that went wrong shows in the next loss. Raises
    ValueError for two that have no moment in common.
    """
    common = sorted(ours.keys() & theirs.keys())
    if not common:
        raise ValueError(f"there are hashes of the steps {_span(ours)} and {_span(theirs)}: none is of the same step")
    for done in common:
        for name, mine in ours[done].items():
            if tolerance and done > common[0] and name.startswith("weight "):
                continue
            other = theirs[done].get(name, mine)
            if other.hash != mine.hash and (apart := mine.apart(other)) >= tolerance:
                return Difference(name, done, apart)
    return None


def together(ranks: Sequence[Moments]) -> Moments:
    """Those of one training: of each tensor what the first rank says that has it."""
    found: dict[int, dict[str, Print]] = {}
    for moments in reversed(ranks):
        for done, one in moments.items():
            found[done] = {**found.get(done, {}), **one}
    return {done: _as_made(one) for done, one in found.items()}


def _as_made(found: Mapping[str, Print]) -> dict[str, Print]:
    """In the order in which a step makes them."""
    order = [*KINDS]
    return dict(sorted(found.items(), key=lambda pair: order.index(pair[0].partition(" ")[0])))


def _span(moments: Iterable[int]) -> str:
    return f"{min(moments)} to {max(moments)}"


def _share(apart: float) -> str:
    if apart == inf:
        return "what is no number"
    return f"{apart:.1%} of its size" if apart >= 1e-3 else f"{apart:.0e} of its size"
