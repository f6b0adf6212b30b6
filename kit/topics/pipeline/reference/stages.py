"""A GPT cut into stages: the first has the embeddings, the last the head, and all of them some blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
import torch.distributed as dist
from torch import nn

Tensor = torch.Tensor


class Model(Protocol):
    """What is asked of a GPT."""

    tokens: nn.Embedding  # (V, C)
    positions: nn.Embedding  # may be missing, where attention knows of places
    dropout: nn.Module
    blocks: nn.ModuleList
    norm: nn.Module
    unembed: nn.Linear | None  # None: the head is the embedding's matrix


class Stage(nn.Module):
    """A run of blocks, with the embeddings before the first and the head behind the last.

    Parameters keep their names in the model. tokens (B, T) or x (B, T, C) -> x (B, T, C), or logits (B, T, V).
    """

    def __init__(self, model: Model, blocks: range, is_first: bool, is_last: bool) -> None:
        super().__init__()
        if is_first:
            self.tokens, self.dropout = model.tokens, model.dropout
            self.positions = getattr(model, "positions", None)
        self.blocks = nn.ModuleDict({str(number): model.blocks[number] for number in blocks})
        if is_last:
            self.norm = model.norm
            self.unembed = model.unembed or _head_of(model.tokens)
        self.is_first, self.is_last = is_first, is_last

    def forward(self, x: Tensor) -> Tensor:
        if self.is_first:
            x = self.embed(x)  # (B, T, C)
        for block in self.blocks.values():
            x = block(x)  # (B, T, C)
        return self.head(x) if self.is_last else x  # (B, T, V) or (B, T, C)

    def embed(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.tokens(tokens)  # (B, T, C)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        y: Tensor = self.dropout(x)
        return y  # (B, T, C)

    def head(self, x: Tensor) -> Tensor:
        logits: Tensor = self.unembed(self.norm(x))
        return logits  # (B, T, V)


def cut(model: Model, stages: int, kind: type[Stage] = Stage) -> list[Stage]:
    """The model in so many stages, with as equal numbers of blocks as can be. They share its parameters.

    A tied head gets a layer of its own around the embedding's matrix: on one rank the two stay one parameter, on two
    `sum_tied` adds their gradients. Raises ValueError for more stages than blocks.
    """
    L = len(model.blocks)
    if not 1 <= stages <= L:
        raise ValueError(f"a model of {L} blocks has 1 to {L} stages, not {stages}")
    ends = [L * s // stages for s in range(stages + 1)]
    return [kind(model, range(ends[s], ends[s + 1]), is_first=s == 0, is_last=s == stages - 1) for s in range(stages)]


def sum_tied(stages: Mapping[int, Stage], group: dist.ProcessGroup) -> None:
    """After a step whose first and last stage are on two ranks, the members of `group`: the gradients of the matrix
    they share are added, so that both go on equal. Nothing to do where one rank holds both.
    """
    held = [stage.tokens.weight for stage in stages.values() if stage.is_first]
    held += [stage.unembed.weight for stage in stages.values() if stage.is_last]
    if len(held) == 1:
        assert held[0].grad is not None, "the stage has gone back through its matrix"
        dist.all_reduce(held[0].grad, group=group)


def _head_of(embedding: nn.Embedding) -> nn.Linear:
    V, C = embedding.weight.shape
    head = nn.Linear(C, V, bias=False, device="meta")
    head.weight = embedding.weight
    return head
