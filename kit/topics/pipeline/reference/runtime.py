"""Runs any schedule on real ranks: each takes the actions of its row, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import record_function

from kit.topics.data_parallel.reference.built_in import Group
from kit.topics.pipeline.reference.mail import Action, Letter, Mail, Rows, made_by
from kit.topics.pipeline.reference.parted import WeightGradients

Tensor = torch.Tensor


class Pipeline:
    """One rank's part of a pipeline. All ranks of the world make theirs at the same time: groups are made for the
    messages.

    rows: by rank, the actions of the schedule: objects with stage, kind ('F', 'B', 'I', 'W') and micro_batch. stages:
    the modules of the stages this rank holds, by number; where two copies of the model run, the second's are numbered
    on from `depth`. depth: stages of the model. like: a tensor of the shape, dtype and device of what passes between
    stages, (B, T, C). loss_of(y, target) -> (). group: the ranks of this pipeline, a row for each, where there are
    several side by side; None: all ranks.

    Raises ValueError for rows that do not fit the group or the stages. That the schedule can run is proved before, by
    its validator: one that cannot makes ranks wait for ever.
    """

    def __init__(
        self,
        rows: Rows,
        stages: Mapping[int, nn.Module],
        depth: int,
        like: Tensor,
        loss_of: Callable[[Tensor, Tensor], Tensor],
        group: Group = None,
    ) -> None:
        rank, world = dist.get_rank(group), dist.get_world_size(group)
        if len(rows) != world:
            raise ValueError(f"a schedule of {len(rows)} ranks cannot run on {world}")
        wanted = {action.stage for action in rows[rank]}
        if wanted != stages.keys():
            raise ValueError(f"rank {rank} computes stages {sorted(wanted)}, and was given {sorted(stages)}")
        self._row, self._stages, self._depth, self._loss_of = rows[rank], stages, depth, loss_of
        self._micro_batches = 1 + max(action.micro_batch for row in rows for action in row)
        self._mail = Mail(rows, depth, like, group)
        parted = any(action.kind == "I" for row in rows for action in row)
        self._weights = {number: WeightGradients(stage) for number, stage in stages.items()} if parted else {}
        self._kept: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}  # (stage, micro-batch): what came in, and out
        self._losses: dict[int, Tensor] = {}

    def step(self, inputs: Sequence[Tensor] = (), targets: Sequence[Tensor] = ()) -> list[Tensor]:
        """One training step: gradients of the mean loss are added to the stages' parameters.

        inputs, targets: by micro-batch, where the first stage and the last one are; elsewhere they are not looked at.
        Returns the losses, each (), of the micro-batches whose last stage is here, in their order. Raises ValueError
        for another number of micro-batches than the schedule's.
        """
        for name, given, needed in (("inputs", inputs, self._is_first), ("targets", targets, self._is_last)):
            if any(map(needed, self._stages)) and len(given) != self._micro_batches:
                raise ValueError(f"{len(given)} {name} for a schedule of {self._micro_batches} micro-batches")
        self._losses.clear()
        self._mail.open()
        for action in self._row:
            match action.kind:
                case "F":
                    self._forward(action, inputs, targets)
                case "B" | "I":
                    self._backward(action)
                case "W":
                    self._weight(action)
        self._mail.close()
        return [self._losses[j] for j in sorted(self._losses)]

    def _forward(self, action: Action, inputs: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
        s, j = action.stage, action.micro_batch
        x = inputs[j] if self._is_first(s) else self._mail.take(Letter(s, "F", j)).requires_grad_()  # (B, T, C)
        with _named(action):
            y = self._stages[s](x)  # (B, T, C)
            if self._is_last(s):
                loss = self._loss_of(y, targets[j])  # ()
                self._losses[j] = loss.detach()
                y = loss / self._micro_batches
        self._kept[s, j] = x, y
        self._send(action, y.detach())

    def _backward(self, action: Action) -> None:
        s, j = action.stage, action.micro_batch
        x, y = self._kept.pop((s, j))
        dy = None if self._is_last(s) else self._mail.take(Letter(s, "B", j))  # (B, T, C)
        with _named(action):
            if action.kind == "I":
                with self._weights[s].put_off(j):
                    y.backward(dy)
            else:
                y.backward(dy)
        if x.grad is not None:
            self._send(action, x.grad)

    def _weight(self, action: Action) -> None:
        with _named(action):
            self._weights[action.stage].compute(action.micro_batch)

    def _send(self, action: Action, what: Tensor) -> None:
        letter = made_by(action, self._depth)
        if letter:
            self._mail.send(letter, what)

    def _is_first(self, stage: int) -> bool:
        return stage % self._depth == 0

    def _is_last(self, stage: int) -> bool:
        return (stage + 1) % self._depth == 0


def _named(action: Action) -> record_function:
    """Under this name, which torch's own runtime gives it, too, an action is in every profile and trace: what it waits
    for is not.
    """
    return record_function(f"PP:{action.stage}{action.kind}{action.micro_batch}")
