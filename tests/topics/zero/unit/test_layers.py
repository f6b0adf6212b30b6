"""Which modules are layers, and whose a parameter is."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import Parameter

from kit.gpt.model import GPT, GPTConfig
from kit.topics.zero.reference.layers import by_kind, layers_of, owners


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(1, 1), nn.Linear(1, 1)


def test_layers_stand_in_lists_outermost_first() -> None:
    gpt = GPT(GPTConfig.named("tiny"))
    assert layers_of(gpt) == list(gpt.blocks)
    inner = nn.Sequential(nn.Linear(1, 1))
    row = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), inner)
    assert layers_of(row) == [row[0], inner], "a ReLU has nothing to gather, an inner row is one layer"
    inside, last = [Pair(), Pair()], Pair()
    nested = nn.ModuleList([nn.ModuleList(inside), last])
    holder = nn.Module()
    holder.lists = nested
    assert layers_of(holder) == [*inside, last]


def test_without_lists_the_children_are_layers() -> None:
    pair = Pair()
    assert layers_of(pair) == [pair.left, pair.right]
    assert layers_of(nn.Linear(1, 1)) == []


def test_what_is_nobodys_or_shared_is_the_roots() -> None:
    gpt = GPT(GPTConfig.named("tiny"))
    names = {p: name for name, p in gpt.named_parameters()}
    *blocks, root = owners(names, layers_of(gpt), gpt)
    assert [set(block) for block in blocks] == [set(block.parameters()) for block in gpt.blocks]
    assert list(root.values()) == ["tokens.weight", "positions.weight", "norm.weight"]
    row = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    row[1].weight = row[0].weight
    names = {p: name for name, p in row.named_parameters()}
    first, second, root = owners(names, list(row), row)
    assert [list(own.values()) for own in (first, second, root)] == [["0.bias"], ["1.bias"], ["0.weight"]]


def test_layers_that_overlap_or_lie_elsewhere_are_refused() -> None:
    pair = Pair()
    row = nn.Sequential(pair, Pair())
    wrong: list[tuple[list[nn.Module], str]] = [
        ([nn.Linear(1, 1)], "this Linear is not"),
        ([row], "this Sequential is not"),
        ([pair, pair.left], "this Linear is in another"),
        ([pair, pair], "this Pair is in another, or there twice"),
    ]
    for layers, words in wrong:
        with pytest.raises(ValueError, match=words):
            owners({}, layers, row)


def test_kinds_have_one_dtype_and_train_or_do_not() -> None:
    names = {
        Parameter(torch.zeros(1)): "a",
        Parameter(torch.zeros(1, dtype=torch.float64)): "b",
        Parameter(torch.zeros(1), requires_grad=False): "c",
        Parameter(torch.zeros(1)): "d",
    }
    assert [list(kind.values()) for kind in by_kind(names)] == [["a", "d"], ["b"], ["c"]]
