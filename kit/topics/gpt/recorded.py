"""A training that went on when its lab was recorded, for readers who have no ranks: what was there at its end."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kit.gpt.trainer import Trainer
from kit.topics.gpt.history import About, History, Lost, Taken
from kit.topics.gpt.standing import Here

if TYPE_CHECKING:
    from kit.run.cursor import Steppable
    from kit.run.recordings.replay_runner import ReplayRunner
    from kit.run.results import Recording

NAME = "training"  # of what is kept
State = Literal["running", "paused", "finished", "stopped", "failed"]


def text_of(history: History, state: str, trouble: str, saved: str) -> str:
    """What is kept of a training."""
    about, steps = asdict(history.about), [asdict(step) for step in history.steps]
    lost = history.lost and asdict(history.lost)
    told = {"about": about, "steps": steps, "lost": lost, "state": state, "trouble": trouble, "saved": saved}
    return json.dumps(told)


class Recorded:
    """Has the face of `Training`. What a person wishes of it changes nothing, and each cell says why."""

    rate = 1.0  # a factor on the recipe's; the one that was recorded stays
    prompt = ""

    def __init__(self, runner: ReplayRunner) -> None:
        self._runner = runner
        found = json.loads(runner.kept(NAME))
        lost = found.get("lost")
        steps = [Taken.of(step) for step in found["steps"]]
        self.history = History(About.of(found["about"]), steps, Lost(**lost) if lost else None)
        self.state: State = found["state"]
        self.trouble: str = found["trouble"]
        self._saved = Path(found["saved"])

    def pause(self) -> None:
        """Nothing goes on."""

    def resume(self) -> None:
        """Nothing goes on."""

    def stop(self) -> None:
        """Nothing goes on."""

    def save(self) -> Path:
        """The checkpoint's folder, as it was where the lab was recorded."""
        return self._saved

    def wait(self, timeout: float | None = None, step: int | None = None) -> State:
        return self.state

    def step_through(self) -> Steppable:
        """The step that was stepped through, recorded."""
        return self._runner.step(Trainer.step, Here())

    def measure(self) -> Recording:
        """The step that was measured, recorded."""
        return self._runner.record(Trainer.step, Here())

    def subscribe(self, callback: Callable[[], object]) -> Callable[[], None]:
        """There is no news."""
        return lambda: None

    def __repr__(self) -> str:
        return self.history.words(f"{self.state}, recorded", self.trouble)
