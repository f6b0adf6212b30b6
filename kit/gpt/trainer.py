"""The trainer: one step at a time, however the model lies on the ranks.

It knows batches, rates and when to validate; a `Strategy` knows ranks. Between two steps nothing is under way, so a
trainer is paused by not asking it for the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Protocol

import torch

from kit.gpt.data import Batch
from kit.gpt.feed import Feed
from kit.gpt.recipe import Recipe
from kit.gpt.watch import Mark, watch


class Strategy(Protocol):
    """A model as it lies on the ranks. Every rank calls the same in the same order, and gets the same answers.

    part, parts: which share of each step's windows this rank is given. device: where they are to lie.
    """

    part: int
    parts: int
    device: torch.device

    def gradients(self, micro_batches: Sequence[Batch], mark: Mark) -> torch.Tensor:
        """Leaves the gradient of the mean loss over all ranks' micro-batches, and returns that loss, ().

        mark("forward") and mark("backward") are called after each of them, where they are apart.
        """

    def clip(self, norm: float) -> float:
        """Scales all gradients so that their norm together, over all ranks, is `norm` at most; returns what it was."""

    def update(self, rate: float) -> None:
        """Steps the weights against the gradients, and forgets these."""

    def loss(self, micro_batches: Sequence[Batch]) -> torch.Tensor:
        """The mean loss () over all ranks' micro-batches, without dropout or gradients."""

    def state(self) -> dict[str, torch.Tensor]:
        """Copies of what has been learnt, whole and by names that are the same for every strategy.

        What several ranks tell is the same; together they tell all.
        """

    def restore(self, state: Mapping[str, torch.Tensor], steps: int) -> None:
        """Goes on from the state of a training of so many steps; it has the keys that `state` gives here."""

    def random_states(self) -> list[torch.Tensor]:
        """Of all generators that this rank draws from."""

    def set_random_states(self, states: Sequence[torch.Tensor]) -> None:
        """Draws go on from there."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step did, of all ranks together, and how long it took on this one.

    spent: seconds of its parts: data, forward, backward (or pipeline, where the two interleave), update.
    """

    number: int  # from 0
    loss: float  # nats, the mean over all windows of the step, before it
    norm: float  # of all gradients together, before clipping
    rate: float
    windows: int
    tokens: int
    spent: Mapping[str, float]

    @property
    def seconds(self) -> float:
        """dt."""
        return sum(self.spent.values())


class Trainer:
    """Trains by a recipe: `step()` takes one step, iterating takes all that are left.

    done: steps that have been taken; the next one has this number. seen: windows of the text that they took. Raises
    ValueError for a recipe whose batch the ranks cannot share, or whose text is too short.
    """

    def __init__(self, strategy: Strategy, recipe: Recipe, train: Feed, validation: Feed | None = None) -> None:
        self.strategy, self.recipe, self.train, self.validation = strategy, recipe, train, validation
        m = recipe.micro_batches(train.block, strategy.parts)
        self.windows = recipe.batch * m * strategy.parts  # of a step, on all ranks together
        self.done, self.seen = 0, 0
        for name, feed in (("to train on", train), ("to validate with", validation)):
            if feed is not None and feed.in_a_pass < self.windows:
                raise ValueError(
                    f"the text {name} has {feed.in_a_pass} windows of {feed.block} tokens, and a step takes"
                    f" {self.windows}: use a longer text, a shorter block or a smaller batch"
                )

    def __iter__(self) -> Iterator[StepReport]:
        """The steps that are left, each taken when it is asked for."""
        while self.done < self.recipe.steps:
            yield self.step()

    def step(self) -> StepReport:
        """Takes the next step.

        Raises FloatingPointError for a loss or a gradient that is no number any more, before a weight is changed; the
        trainer stands where it stood.
        """
        strategy, number = self.strategy, self.done
        time = watch(strategy.device)
        batches = self._windows(self.train, self.seen)
        time.mark("data")
        mean = strategy.gradients(batches, time.mark)
        norm = strategy.clip(self.recipe.clip)
        loss = float(mean)
        if not (isfinite(loss) and isfinite(norm)):
            raise FloatingPointError(
                f"the loss of step {number} is {loss} and the norm of its gradients {norm}: no weight was changed. Go"
                " on from a checkpoint with a lower rate, a longer warm-up or another number format"
            )
        rate = self.recipe.rate_of(number)
        strategy.update(rate)
        time.mark("update")
        self.done, self.seen = self.done + 1, self.seen + self.windows
        return StepReport(number, loss, norm, rate, self.windows, self.windows * self.train.block, time.seconds())

    def validate(self) -> float:
        """The mean loss in nats over the same windows of the validation text each time, on all ranks together.

        Raises ValueError for a trainer without a text to validate with.
        """
        if self.validation is None:
            raise ValueError("there is no text to validate with: give the trainer one")
        losses = [
            self.strategy.loss(self._windows(self.validation, k * self.windows)) for k in range(self.recipe.validation)
        ]
        return float(torch.stack(losses).mean())

    @property
    def validates(self) -> bool:
        """Whether the recipe wants a validation now, between two steps."""
        every = self.recipe.validate_every
        return self.validation is not None and every > 0 and (self.done % every == 0 or self.done == self.recipe.steps)

    def _windows(self, feed: Feed, first: int) -> list[Batch]:
        s = self.strategy
        return feed.micro_batches(first, self.windows, self.recipe.batch, part=s.part, parts=s.parts, device=s.device)
