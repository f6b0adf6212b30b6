"""Where trainings part: the first tensor that differs, between the ranks of one of them and between two.

Ranks that hold the same must have the same bits. Two strategies add up in another order, and so agree within a
tolerance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from kit.gpt.prints import Difference, Moments, Prints, first_parted, prints, read_prints, together
from kit.run import current
from kit.run.call import Call
from kit.run.runner import Runner, RunOptions
from kit.topics.gpt.run import Config, prepare

TOLERANCE = 1e-3  # rounding in fp32 is a hundredth of it after a few steps, a mistake some percent


@dataclass(frozen=True)
class Parting:
    """What `compare` finds: `str()` has a sentence for each training, and for each beside the first."""

    runs: Mapping[str, Sequence[Moments]]  # by name what each rank had
    tolerance: float

    @property
    def between_ranks(self) -> dict[str, tuple[int, Difference] | None]:
        """Of each training the rank that parted first from another that holds the same, and in what."""
        return {name: _first_rank(ranks) for name, ranks in self.runs.items()}

    @property
    def between_runs(self) -> dict[str, Difference | None]:
        """Of each but the first in what it parted from the first."""
        (_, ours), *others = self.runs.items()
        return {name: first_parted(together(ours), together(ranks), self.tolerance) for name, ranks in others}

    @property
    def same(self) -> bool:
        """Whether nothing parted."""
        return not any((*self.between_ranks.values(), *self.between_runs.values()))

    def __str__(self) -> str:
        head = next(iter(self.runs))
        lines = []
        for name, parted in self.between_ranks.items():
            if parted is not None:
                lines.append(f"{name}: {parted[1]}: rank {parted[0]} from a rank before it")
            elif len(self.runs[name]) > 1:
                lines.append(f"{name}: what several ranks hold is the same on all of them, bit by bit")
        for name, difference in self.between_runs.items():
            said = difference or f"the same within {self.tolerance:g} after step {max(together(self.runs[name]))}"
            lines.append(f"{name} beside {head}: {said}")
        return "\n".join(lines) or f"{head}: one rank, and nothing to compare it with"

    __repr__ = __str__


def compare(
    runs: Mapping[str, Config | str | Path],
    steps: int = 3,
    tolerance: float = TOLERANCE,
    cluster: Runner | None = None,
) -> Parting:
    """Which tensor is the first to differ: between ranks of each training, and between it and the first of them.

    runs: by name a configuration, of which `steps` steps are taken now on the ranks of a cluster (None: of this
    kernel's; 'single' on one of them), or the folder of one that has run with `hashes` (`lockstep train --hashes
    FOLDER`). tolerance: by how much of its size a tensor may differ between two strategies; 0: by no bit.

    Raises ValueError for none, for folders without hashes, and for trainings without a step in common.
    """
    if not runs:
        raise ValueError('name at least one training: gpt.compare({"single": Config(), "ddp": Config(strategy="ddp")})')
    found = {
        name: _taken(run, steps, cluster) if isinstance(run, Config) else read_prints(run) for name, run in runs.items()
    }
    return Parting(found, tolerance)


def _taken(config: Config, steps: int, cluster: Runner | None) -> list[Moments]:
    runner = current.runner() if cluster is None else cluster
    options = RunOptions(ranks=1 if config.strategy == "single" else None)
    return runner.run(Call(_steps, (config, steps)), options, quiet=True).results


def _steps(config: Config, steps: int) -> dict[int, Prints]:
    """On a rank."""
    trainer = prepare(config, torch.get_default_device()).trainer
    found: dict[int, Prints] = {0: prints(trainer)}
    while trainer.done < min(steps, config.recipe.steps):
        report = trainer.step()
        found[trainer.done] = prints(trainer, report)
    return found


def _first_rank(ranks: Sequence[Moments]) -> tuple[int, Difference] | None:
    """A rank is compared with what those before it hold."""
    parted = [
        (rank, difference)
        for rank in range(1, len(ranks))
        if (difference := first_parted(together(ranks[:rank]), ranks[rank])) is not None
    ]
    return min(parted, key=lambda each: (each[1].done, each[0]), default=None)
