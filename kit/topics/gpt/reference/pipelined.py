"""Models in stages: a rank has some of them, and micro-batches pass from one to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn

from kit.topics.gpt.reference.ladder import Exact
from kit.topics.gpt.reference.mesh import Group, Groups
from kit.topics.gpt.reference.replicas import KINDS, Batch, Mark, Stepper, WithRandomNumbers
from kit.topics.gpt.reference.state import RandomStates, gathered, names_of, scattered
from kit.topics.pipeline.reference.parted import Work, parted_linear
from kit.topics.pipeline.reference.stages import Stage
from kit.topics.tensor.reference.gpt import TensorParallelGPT
from kit.topics.tensor.reference.layers import ColumnLinear, RowLinear
from kit.topics.zero.reference.by_hand import flatten, unflatten
from kit.topics.zero.reference.optimizer import ZeroOptimizer

Tensor = torch.Tensor


class Passing(Protocol):
    """What micro-batches go through: the losses () of those whose last stage is on this rank."""

    def step(self, inputs: Sequence[Tensor], targets: Sequence[Tensor]) -> list[Tensor]: ...


@dataclass(frozen=True)
class Shared:
    """Weights that several ranks of a pipeline hold: a head that is the embedding's matrix, or two copies of stages.

    Their gradients are added, so that all go on equal.
    """

    group: Group
    weights: Sequence[nn.Parameter]

    def add_up(self) -> None:
        summed(self.weights, self.group)


class Averaging(Protocol):
    """How gradients of a whole step, which lie in `.grad`, become those of all data, once the pipeline is through."""

    def quiet(self) -> AbstractContextManager[None]:
        """Around the step: nothing is sent in it."""

    def __call__(self) -> None:
        """After it."""


class Alone:
    """There is one pipeline."""

    def quiet(self) -> AbstractContextManager[None]:
        return nullcontext()

    def __call__(self) -> None:
        pass


@dataclass(frozen=True)
class Averaged(Alone):
    """Every pipeline has all of the gradients."""

    weights: Sequence[nn.Parameter]
    group: Group

    def __call__(self) -> None:
        summed(self.weights, self.group, over=dist.get_world_size(self.group))


@dataclass(frozen=True)
class InShards:
    """ZeRO's first stage: each pipeline gets a shard of the sum."""

    zero: ZeroOptimizer

    def quiet(self) -> AbstractContextManager[None]:
        return self.zero.no_sync()

    def __call__(self) -> None:
        self.zero.end_of_backward()
        self.zero.forget_backward()


class Pipelined(WithRandomNumbers):
    """One rank's stages of a model.

    stages: this rank's, by number. training, looking: through them and back, and forward alone. twin: the head's
    matrix, where it is the embedding's. numbers: what they compute in; attending: a context around their passes.
    """

    def __init__(
        self,
        stages: Mapping[int, Stage],
        training: Passing,
        looking: Passing,
        stepper: Stepper,
        groups: Groups,
        shared: Sequence[Shared],
        average: Averaging,
        twin: nn.Parameter | None,
        device: torch.device,
        numbers: Exact,
        attending: Callable[[], AbstractContextManager[object]],
    ) -> None:
        self.stages, self.training, self.looking = stages, training, looking
        self.numbers, self.attending = numbers, attending
        self.stepper, self.groups, self.shared, self.average = stepper, groups, shared, average
        self.twin, self.device = twin, device
        regions = {stage.region for stage in stages.values() if isinstance(stage, StageInShards)}
        self.random = RandomStates(device, [draws for region in regions for draws in (region.equal, region.own)])
        self.part = 0 if groups.dp is None else dist.get_rank(groups.dp)
        self.parts = 1 if groups.dp is None else dist.get_world_size(groups.dp)

    def gradients(self, micro_batches: Sequence[Batch], mark: Mark) -> Tensor:
        """Ranks average when the whole step is through, once."""
        self._set_mode(training=True)
        while True:
            self.stepper.forget()  # what a step that was given up has left
            with self.average.quiet():
                losses = self._through(self.training, micro_batches)
            for shared in self.shared:
                shared.add_up()
            self.average()
            mark("pipeline")
            losses = [self.numbers.unscaled(loss) for loss in losses]  # by the scale that they have
            if self.numbers.settled(self.stepper):
                return self._mean(losses, len(micro_batches))

    def clip(self, norm: float) -> float:
        return self.stepper.clip(norm)

    def update(self, rate: float) -> None:
        self.stepper.step(rate)
        self.stepper.forget()

    @torch.no_grad()
    def loss(self, micro_batches: Sequence[Batch]) -> Tensor:
        self._set_mode(training=False)
        return self._mean(self._through(self.looking, micro_batches), len(micro_batches))

    def state(self) -> dict[str, Tensor]:
        """Of this rank's stages."""
        return gathered(self._names(), self.stepper.held(), self.groups.tp)

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        self.stepper.hold(scattered(self._names(), state, KINDS, self.groups.tp), steps)

    def _names(self) -> dict[str, nn.Parameter]:
        return names_of(self.stages.values(), self.twin)

    def _through(self, pipeline: Passing, micro_batches: Sequence[Batch]) -> list[Tensor]:
        with self.attending():
            return pipeline.step([tokens for tokens, _ in micro_batches], [targets for _, targets in micro_batches])

    def _mean(self, losses: list[Tensor], m: int) -> Tensor:
        """Ranks without a last stage have none of the m losses; every part of the data counts the same."""
        mean = torch.stack(losses).sum() / m if losses else torch.zeros((), device=self.device)  # ()
        for group in self.groups.there("pp", "dp"):
            dist.all_reduce(mean, group=group)
        return mean / self.parts

    def _set_mode(self, training: bool) -> None:
        for stage in self.stages.values():
            stage.train(training)


class StageInShards(Stage):
    """A stage of a model whose layers are cut over a tensor-parallel group: what comes in and goes out is as its region
    has it outside of them, (B, T, C) or (B, T/n, C).
    """

    def __init__(self, model: TensorParallelGPT, blocks: range, is_first: bool, is_last: bool) -> None:
        super().__init__(model, blocks, is_first, is_last)  # type: ignore[arg-type]  # positions are no module
        self.region = model.region
        for layer in self.modules():
            if isinstance(layer, ColumnLinear | RowLinear):
                layer.part = partial(PARTED[type(layer)], layer)  # type: ignore[assignment]

    def embed(self, tokens: Tensor) -> Tensor:
        positions: Any = self.positions  # (block, C)
        places = self.region.use(positions)[: tokens.shape[1]].unsqueeze(0)  # (1, T, C)
        x: Tensor = self.dropout(self.region.part(places) + self.tokens(tokens))
        return x  # (B, T, C)

    def head(self, x: Tensor) -> Tensor:
        logits: Tensor = self.unembed(self.region.enter(self.norm(x)))
        return logits  # (B, T, V/n)


def _part_column(layer: ColumnLinear, take: Callable[[Work], None]) -> None:
    """From now on the gradients of its weights can be put off."""
    layer.forward = lambda x: parted_linear(take, x, layer.weight, layer.bias)  # type: ignore[method-assign]


def _part_row(layer: RowLinear, take: Callable[[Work], None]) -> None:
    def forward(x: Tensor) -> Tensor:
        y = layer.region.leave(parted_linear(take, x, layer.weight))  # (B, T, F/n) -> (B, T, C)
        return y if layer.bias is None else y + layer.region.use(layer.bias)

    layer.forward = forward  # type: ignore[method-assign]


PARTED: dict[type[nn.Module], Callable[..., None]] = {ColumnLinear: _part_column, RowLinear: _part_row}


def held_here(stages: Mapping[int, Stage]) -> nn.ModuleDict:
    """All stages of a rank as one module, a shared matrix once."""
    return nn.ModuleDict({str(number): stage for number, stage in stages.items()})


def summed(weights: Sequence[nn.Parameter], group: Group, over: int = 1) -> None:
    """Adds up the gradients that the ranks of a group have of these weights, in one message, and divides by `over`."""
    gradients = [p.grad for p in weights if p.grad is not None]
    assert len(gradients) == len(weights), "every stage has gone back"
    flat = flatten(gradients, 1)  # (1, P)
    dist.all_reduce(flat, group=group)
    for gradient, new in zip(gradients, unflatten(flat / over, [x.shape for x in gradients]), strict=True):
        gradient.copy_(new)
