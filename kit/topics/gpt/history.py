"""What a training has done so far, step by step, and the file that keeps it: one line of JSON for each step.

The file can be read while it is written, and a training that goes on from a checkpoint goes on in it too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import IO, TYPE_CHECKING, Any, Self

from kit.cost.training import mfu
from kit.gpt.model import GPTConfig
from kit.gpt.recipe import Recipe

if TYPE_CHECKING:
    from kit.trace.trace import Trace

LATELY = 20  # steps: speeds are means over so many


@dataclass(frozen=True)
class About:
    """What is trained, and on what."""

    strategy: str
    devices: tuple[str, ...]  # by rank
    model: GPTConfig
    parameters: int  # without positions
    recipe: Recipe
    tokens: int  # of a step, on all ranks together
    flops: float  # of the model for one token, forward and backward
    peak: float  # flops per second that one device could do
    source: str  # where that figure is from
    started: str  # ISO 8601, with the zone

    @property
    def ranks(self) -> int:
        return len(self.devices)

    @staticmethod
    def of(found: Mapping[str, Any]) -> About:
        """As JSON gives it back."""
        recipe = {**found["recipe"], "betas": tuple(found["recipe"]["betas"])}
        parts = {"devices": tuple(found["devices"]), "model": GPTConfig(**found["model"]), "recipe": Recipe(**recipe)}
        return About(**{**found, **parts})


@dataclass(frozen=True, slots=True)
class Taken:
    """A step that was taken, and what was done after it."""

    number: int  # from 0
    loss: float  # nats, the mean over all windows of the step, before it
    norm: float  # of all gradients together, before clipping
    rate: float
    windows: int  # of all ranks together
    tokens: int
    spent: Mapping[str, float]  # seconds: data, forward, backward (or pipeline, where the two interleave), update
    memory: tuple[int, ...] = ()  # bytes by rank at the last look; () before it
    validation: float | None = None  # nats, after the step
    sample: str = ""  # text of the model, after the step

    @property
    def seconds(self) -> float:
        """dt."""
        return sum(self.spent.values())

    @staticmethod
    def of(found: Mapping[str, Any]) -> Taken:
        """As JSON gives it back."""
        return Taken(**{**found, "memory": tuple(found["memory"])})


@dataclass(frozen=True, slots=True)
class Lost:
    """What of a step's time was not computing, as it was recorded: shares, the mean over all ranks."""

    number: int  # of the step, from 0
    communication: float  # under way while the rank did not compute
    waiting: float  # stood still for a rank that had not come: in a pipeline, its bubbles

    @staticmethod
    def of(trace: Trace, number: int) -> Lost:
        """Of a trace that holds one step. ValueError where no rank did anything."""
        seen = trace.overlap()
        whole = seen.seconds * len(seen.ranks)
        if not whole:
            raise ValueError("nothing was recorded of this step")
        exposed, waited = sum(rank.exposed for rank in seen.ranks), sum(rank.waited for rank in seen.ranks)
        return Lost(number, exposed / whole, waited / whole)


@dataclass
class History:
    """The steps of one training, as far as they are known."""

    about: About
    steps: list[Taken] = field(default_factory=list)
    lost: Lost | None = None  # of the step that was recorded last

    def append(self, taken: Taken) -> None:
        """A step; those from its number on were lost with a rank, and are forgotten."""
        while self.steps and self.steps[-1].number >= taken.number:
            self.steps.pop()
        self.steps.append(taken)

    @property
    def latest(self) -> Taken | None:
        return self.steps[-1] if self.steps else None

    @property
    def done(self) -> int:
        """Steps that have been taken."""
        return self.steps[-1].number + 1 if self.steps else 0

    @property
    def seconds_per_step(self) -> float:
        """Lately; 0 before the first step."""
        return fmean(step.seconds for step in self.steps[-LATELY:]) if self.steps else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Of all ranks together, lately; 0 before the first step."""
        return self._per_second(sum(step.tokens for step in self.steps[-LATELY:]))

    @property
    def samples_per_second(self) -> float:
        """Windows, of all ranks together, lately; 0 before the first step."""
        return self._per_second(sum(step.windows for step in self.steps[-LATELY:]))

    @property
    def mfu(self) -> float:
        """The share of the devices' peak that the model's own arithmetic reaches, lately."""
        a = self.about
        return mfu(
            tokens_per_second=self.tokens_per_second, flops_per_token=a.flops, peak=a.peak, devices=len(a.devices)
        )

    @property
    def seconds_left(self) -> float | None:
        """Of the steps that are left, at the pace of late; None before the first step."""
        return (self.about.recipe.steps - self.done) * self.seconds_per_step if self.steps else None

    def words(self, state: str, trouble: str = "") -> str:
        """How a training stands: 'Training(ddp=4, step 200 of 5,000, loss 2.134, paused)'."""
        loss = f", loss {self.latest.loss:.3f}" if self.latest is not None else ""
        steps = f"step {self.done:,} of {self.about.recipe.steps:,}"
        return f"Training({self.about.strategy}, {steps}{loss}, {state}){f': {trouble}' if trouble else ''}"

    def _per_second(self, amount: float) -> float:
        spent = sum(step.seconds for step in self.steps[-LATELY:])
        return amount / spent if spent else 0.0

    @staticmethod
    def load(path: str | Path) -> History:
        """As far as it has been written. Raises ValueError for a file that is no history."""
        return Reader(path).history

    @staticmethod
    def writer(path: str | Path) -> Writer:
        """Writes a history to a file, after what is there of the same training."""
        return Writer(path)


class Writer:
    """Each line is in the file when the call returns."""

    def __init__(self, path: str | Path) -> None:
        self._file: IO[str] = Path(path).open("a", encoding="utf-8", buffering=1)  # noqa: SIM115  # closed by `close`

    def begin(self, about: About) -> None:
        self._write({"about": asdict(about)})

    def append(self, taken: Taken) -> None:
        self._write({"step": asdict(taken)})

    def measured(self, lost: Lost) -> None:
        self._write({"lost": asdict(lost)})

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")


class Reader:
    """A file that may still be written: `read` takes in what has come since."""

    def __init__(self, path: str | Path) -> None:
        self._path, self._offset = Path(path), 0
        self._history: History | None = None
        self.read()

    @property
    def history(self) -> History:
        """Grows with each `read`. Raises ValueError before the file has its first line."""
        if self._history is None:
            raise ValueError(f"{self._path} has no line yet: `lockstep train --log {self._path}` writes it")
        return self._history

    def read(self) -> bool:
        """Whether there was more. Raises ValueError for a file that is not there, or no history."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                whole = file.read().rpartition(b"\n")[0]  # the last line may be half-written
        except OSError as error:
            raise ValueError(f"{self._path} cannot be read: {error.strerror}") from error
        if not whole:
            return False
        for line in whole.split(b"\n"):
            self._take(line)
        self._offset += len(whole) + 1
        return True

    def _take(self, line: bytes) -> None:
        try:
            found = json.loads(line)
            if "step" in found and self._history is not None:
                self._history.append(Taken.of(found["step"]))
            elif "lost" in found and self._history is not None:
                self._history.lost = Lost(**found["lost"])
            elif self._history is None:
                self._history = History(About.of(found["about"]))
            else:  # it was resumed, perhaps on other ranks
                self._history.about = About.of(found["about"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self._path} is no history of a training: `lockstep train --log FILE` writes one"
            ) from error
