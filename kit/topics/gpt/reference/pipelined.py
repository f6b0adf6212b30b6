"""Models in stages: a rank has some of them, and micro-batches pass from one to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import nn

from kit.topics.gpt.reference.replicas import KINDS, Batch, Mark, Stepper, WithRandomNumbers
from kit.topics.gpt.reference.state import RandomStates, gathered, scattered
from kit.topics.pipeline.reference.mail import Rows
from kit.topics.pipeline.reference.runtime import Pipeline
from kit.topics.pipeline.reference.stages import Stage, sum_tied

Tensor = torch.Tensor


class Pipelined(WithRandomNumbers):
    """One rank's stages of a model, all ranks of the world being one pipeline.

    stages: this rank's, by number. rows: of each rank its actions for one step. like: a tensor as it passes between
    stages (B, T, C). ends: the ranks of the first and the last stage, if these are two that share a matrix. twin: the
    head's matrix, where it is the embedding's.
    """

    part, parts = 0, 1

    def __init__(
        self,
        stages: Mapping[int, Stage],
        rows: Rows,
        depth: int,
        like: Tensor,
        loss_of: Callable[[Tensor, Tensor], Tensor],
        stepper: Stepper,
        ends: dist.ProcessGroup | None,
        twin: nn.Parameter | None,
    ) -> None:
        self.stages, self.stepper, self.device, self.ends, self.twin = stages, stepper, like.device, ends, twin
        self.random = RandomStates(self.device)
        forward = [[action for action in row if action.kind == "F"] for row in rows]
        self.training = Pipeline(rows, stages, depth, like, loss_of)
        self.looking = Pipeline(forward, stages, depth, like, loss_of)
        self.last = next(rank for rank, row in enumerate(rows) if any(action.stage == depth - 1 for action in row))

    def gradients(self, micro_batches: Sequence[Batch], mark: Mark) -> Tensor:
        self._set_mode(training=True)
        self.stepper.forget()
        losses = self._through(self.training, micro_batches)
        if self.ends is not None:
            sum_tied(self.stages, self.ends)
        mark("pipeline")
        return self._mean(losses)

    def clip(self, norm: float) -> float:
        return self.stepper.clip(norm)

    def update(self, rate: float) -> None:
        self.stepper.step(rate)
        self.stepper.forget()

    @torch.no_grad()
    def loss(self, micro_batches: Sequence[Batch]) -> Tensor:
        self._set_mode(training=False)
        return self._mean(self._through(self.looking, micro_batches))

    def state(self) -> dict[str, Tensor]:
        """Of this rank's stages."""
        return gathered(self._names(), self.stepper.held(), None)

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        self.stepper.hold(scattered(self._names(), state, KINDS, None), steps)

    def _names(self) -> dict[str, nn.Parameter]:
        """By their names in the model, where a head that is the embedding's matrix has none of its own."""
        named = [pair for stage in self.stages.values() for pair in stage.named_parameters()]
        return {"tokens.weight" if p is self.twin else name: p for name, p in named}

    def _through(self, pipeline: Pipeline, micro_batches: Sequence[Batch]) -> list[Tensor]:
        return pipeline.step([tokens for tokens, _ in micro_batches], [targets for _, targets in micro_batches])

    def _mean(self, losses: list[Tensor]) -> Tensor:
        """The last stage's rank tells the others."""
        mean = torch.stack(losses).mean() if losses else torch.zeros((), device=self.device)  # ()
        dist.broadcast(mean, src=self.last)
        return mean

    def _set_mode(self, training: bool) -> None:
        for stage in self.stages.values():
            stage.train(training)


def held_here(stages: Mapping[int, Stage]) -> nn.ModuleDict:
    """All stages of a rank as one module, a shared matrix once."""
    return nn.ModuleDict({str(number): stage for number, stage in stages.items()})
