"""On a rank: a training whose steps are noted, and that nobody listens to."""

from __future__ import annotations

import time

from kit.gpt.trainer import StepReport, Trainer
from kit.topics.gpt.run import Config, prepare

Times = list[tuple[float, float]]  # of each step its beginning and end

taken: Times = []
plainly = Trainer.step


def note_steps() -> None:
    """From now on every step is noted, whoever asks for it."""

    def step(trainer: Trainer) -> StepReport:
        began = time.perf_counter()
        report = plainly(trainer)
        taken.append((began, time.perf_counter()))
        return report

    Trainer.step = step  # type: ignore[method-assign]


def train_alone(config: Config) -> None:
    """The same steps, and nobody hears of them."""
    for _ in prepare(config).trainer:
        pass


def noted() -> Times:
    """What has been noted since it was asked last."""
    found = taken.copy()
    taken.clear()
    return found
