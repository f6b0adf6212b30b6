"""A GPT of which each rank holds a shard of every layer, made from a whole one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import nn

from kit.topics.data_parallel.reference.built_in import Group
from kit.topics.tensor.reference.layers import (
    MLP,
    Attention,
    ColumnLinear,
    Dropout,
    Norm,
    VocabularyEmbedding,
    held_by_all,
    vocabulary_loss,
    whole,
)
from kit.topics.tensor.reference.regions import ByPosition, Region, Whole

Tensor = torch.Tensor


class Model(Protocol):
    """What is asked of a GPT. In its blocks: norm_1, attention (qkv, out, n_head, p), norm_2, mlp (up, down)."""

    tokens: nn.Embedding  # (V, C)
    positions: nn.Embedding  # (block, C)
    dropout: nn.Dropout
    blocks: nn.ModuleList
    norm: nn.LayerNorm
    unembed: nn.Linear | None  # None: the head is the embedding's matrix


# The shapes stand in one column.
# fmt: off


class TensorParallelGPT(nn.Module):
    """model in shards over a group. sequence: outside attention and MLP each rank holds T/n positions.

    model has the same weights on every rank. seed: of dropout, the same too. Every rank is given the same tokens.
    ValueError for heads, features, vocabulary or positions that n ranks cannot share evenly.
    """

    def __init__(self, model: Model, group: Group = None, sequence: bool = False, seed: int = 0) -> None:
        super().__init__()
        self.region: Region = (ByPosition if sequence else Whole)(group, seed)
        self.tokens = VocabularyEmbedding(model.tokens, self.region)
        self.positions = held_by_all(model.positions.weight)     # (block, C)
        self.dropout = Dropout(model.dropout.p, self.region)
        self.blocks = nn.ModuleList(Block(block, self.region) for block in model.blocks)
        self.norm = Norm(model.norm, self.region)
        self.unembed = None if model.unembed is None else ColumnLinear(model.unembed, group)

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """tokens, targets (B, T) -> this rank's logits (B, T, V/n), and the mean loss () where targets are given."""
        places = self.region.use(self.positions)[: tokens.shape[1]].unsqueeze(0)  # (1, T, C)
        x = self.region.part(places) + self.tokens(tokens)       # (B, T, C)
        x = self.dropout(x)                                      # (B, T, C)
        for block in self.blocks:
            x = block(x)                                         # (B, T, C)
        x = self.region.enter(self.norm(x))                      # (B, T, C)
        logits = F.linear(x, self.tokens.weight if self.unembed is None else self.unembed.weight)  # (B, T, V/n)
        return logits, None if targets is None else vocabulary_loss(logits, targets, self.region.group)

    def gradients(self) -> Iterator[tuple[str, Tensor]]:
        """Every parameter's name and whole gradient. All ranks of the group call."""
        for name, p in self.named_parameters():
            assert p.grad is not None, "after backward"
            yield name, whole(p, p.grad, self.region.group)


class Block(nn.Module):
    """Attention, then MLP, each added to what came in. (B, T, C) -> (B, T, C)."""

    def __init__(self, block: Any, region: Region) -> None:
        super().__init__()
        old = block.attention
        self.norm_1, self.norm_2 = Norm(block.norm_1, region), Norm(block.norm_2, region)
        self.attention = Attention(thirds(old.qkv), old.out, old.n_head, region, dropout=old.p)
        self.mlp = MLP(block.mlp.up, block.mlp.down, region, block.mlp.approximate)
        self.drop_1, self.drop_2 = Dropout(old.p, region), Dropout(old.p, region)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_1(self.attention(self.norm_1(x)))      # (B, T, C)
        y: Tensor = x + self.drop_2(self.mlp(self.norm_2(x)))    # (B, T, C)
        return y


def thirds(qkv: nn.Linear) -> list[nn.Linear]:
    """q, k and v, whose rows lie one behind the other in one matrix: cut as one, rank 0 would get q and half of k."""
    layers = []
    for number in range(3):
        layer = nn.Linear(qkv.in_features, qkv.out_features // 3, bias=qkv.bias is not None, device="meta")
        layer.weight = nn.Parameter(qkv.weight.detach().chunk(3)[number])
        if qkv.bias is not None:
            layer.bias = nn.Parameter(qkv.bias.detach().chunk(3)[number])
        layers.append(layer)
    return layers


# fmt: on
