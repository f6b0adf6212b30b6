"""What the stages of a pipeline do while a schedule runs: sleep, so that a schedule can be seen, or compute a GPT."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from kit.cost.pipeline import Times
from kit.plan.schedule import KINDS, Action

if TYPE_CHECKING:
    from kit.gpt.model import GPTConfig
    from kit.plan.schedule import Schedule
    from kit.run.slow_links import SlowLinks

FLOAT = 4  # bytes


class Stages(Protocol):
    """What the ranks of a run hold and compute."""

    @property
    def about(self) -> str:
        """'stages sleep in the place of computing'."""

    def times(self, schedule: Schedule, link: SlowLinks | None = None) -> Times:
        """What is expected of each action and message."""

    def task(self, schedule: Schedule, steps: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """What each rank calls, and with what. ValueError for a schedule that these stages do not fit."""

    def wrong(self, schedule: Schedule, results: Sequence[Any]) -> str:
        """What differs from a run without a pipeline; '' where nothing does."""


@dataclass(frozen=True)
class Work:
    """Seconds of an action at a stage, which sleeps so long: F, I and W; a whole backward pass takes I and W.

    slow: stage -> how many times longer all of it takes there. width: of the small layer that a stage computes, C: a
    message is (8, C).
    """

    forward: float = 0.02
    input: float = 0.02
    weight: float = 0.02
    slow: Mapping[int, float] = field(default_factory=dict)
    width: int = 32

    def __post_init__(self) -> None:
        if not min(self.forward, self.input, self.weight, *self.slow.values()) >= 0:
            raise ValueError("an action takes 0 seconds or more")
        if not self.width >= 1:
            raise ValueError(f"a layer is 1 wide or more, not {self.width!r}")

    @property
    def about(self) -> str:
        return "stages sleep in the place of computing"

    def seconds(self, stage: int) -> tuple[float, float, float]:
        longer = self.slow.get(stage, 1.0)
        return self.forward * longer, self.input * longer, self.weight * longer

    @property
    def nbytes(self) -> int:
        """Of what passes between two stages."""
        from kit.topics.pipeline.drives import BATCH

        return BATCH * self.width * FLOAT

    def times(self, schedule: Schedule, link: SlowLinks | None = None) -> Times:
        slow = {copy * schedule.stages + s: k for copy in range(schedule.copies) for s, k in self.slow.items()}
        return _over(link, self.nbytes, Times(self.forward, self.input, self.weight, stages=slow))

    def task(self, schedule: Schedule, steps: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        from kit.topics.pipeline.drives import train

        seconds = {stage: self.seconds(stage) for stage in range(schedule.stages)}
        return train, (schedule.text(), schedule.stages, self.width, seconds, steps)

    def wrong(self, schedule: Schedule, results: Sequence[Any]) -> str:
        from kit.topics.pipeline import drives

        return drives.wrong(list(results), schedule.stages, schedule.micro_batches, self.width)


@dataclass(frozen=True)
class GPTWork:
    """A GPT cut into stages: the embeddings in the first, the head in the last, some blocks in each.

    Where it is tied, the head is the embedding's matrix, and after each step the gradients of both are added; so are
    those of a stage that is there in two copies. An action is expected to take what it takes in one process, alone on
    this machine; I and W half of a backward pass each.
    config: None: 8 small blocks. batch: samples of a micro-batch.
    """

    config: GPTConfig | None = None
    batch: int = 4

    @property
    def about(self) -> str:
        return "stages of a GPT"

    @property
    def sizes(self) -> GPTConfig:
        from kit.gpt.model import GPTConfig

        return self.config or GPTConfig(n_layer=8, n_head=4, n_embd=64, block_size=32, vocab_size=65)

    def times(self, schedule: Schedule, link: SlowLinks | None = None) -> Times:
        from kit.topics.pipeline.drives_gpt import seconds

        self._check(schedule)
        took: dict[Action, float] = {}
        for stage, (forward, backward) in enumerate(seconds(self.sizes, schedule.stages, self.batch)):
            parts = {"F": forward, "B": backward, "I": backward / 2, "W": backward / 2}
            for number in range(stage, schedule.stages * schedule.copies, schedule.stages):
                for j in range(schedule.micro_batches):
                    took |= {Action(number, kind, j): parts[kind] for kind in KINDS}
        nbytes = self.batch * self.sizes.block_size * self.sizes.n_embd * FLOAT
        return _over(link, nbytes, Times(measured=took))

    def task(self, schedule: Schedule, steps: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        from kit.topics.pipeline.drives_gpt import train

        self._check(schedule)
        return train, (schedule.text(), schedule.stages, self.sizes, self.batch, steps)

    def wrong(self, schedule: Schedule, results: Sequence[Any]) -> str:
        from kit.topics.pipeline.drives_gpt import wrong

        return wrong(list(results), self.sizes, schedule.micro_batches, self.batch)

    def _check(self, schedule: Schedule) -> None:
        if schedule.stages > self.sizes.n_layer:
            raise ValueError(
                f"{schedule.name} has {schedule.stages} stages, and this GPT {self.sizes.n_layer} blocks, one a stage"
                " at least: GPTWork(GPTConfig(n_layer=...)) has more"
            )


def _over(link: SlowLinks | None, nbytes: int, times: Times) -> Times:
    """The same times, with messages that take what they do on a link."""
    if link is None:
        return times
    message = 0.0 if math.isinf(link.bandwidth) else nbytes / link.bandwidth
    return replace(times, latency=link.latency, message=message, between=link.pairs)
