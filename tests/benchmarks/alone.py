"""On a rank: a training whose steps are noted, and that nobody listens to."""

from __future__ import annotations

import time
from typing import NamedTuple

from kit.gpt.trainer import StepReport, Trainer
from kit.topics.gpt.run import Config, prepare


class Moment(NamedTuple):
    """By the clock, and by this process's own time on processors, in seconds."""

    clock: float
    worked: float

    @staticmethod
    def now() -> Moment:
        return Moment(time.perf_counter(), time.process_time())


Times = list[tuple[Moment, Moment]]  # of each step its beginning and end

taken: Times = []
plainly = Trainer.step


def note_steps() -> None:
    """From now on every step is noted, whoever asks for it."""

    def step(trainer: Trainer) -> StepReport:
        began = Moment.now()
        report = plainly(trainer)
        taken.append((began, Moment.now()))
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
