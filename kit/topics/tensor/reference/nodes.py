"""The same MLPs over two nodes in two ways: cut over all ranks, or in two stages, each cut over the ranks of a node.

Each function goes forward through all layers and back, and returns the gradient of x: on all ranks, in two stages on
those of the first node. x (M, C), the same on every rank. layers: of each MLP its two whole matrices, (F, C) and
(C, F), without biases. nodes: the groups of ranks of the two nodes, made on all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
import torch.distributed as dist

from kit.topics.data_parallel.reference.built_in import Group
from kit.topics.tensor.reference.by_hand import mlp, shard

Tensor = torch.Tensor
Layers: TypeAlias = Sequence[tuple[Tensor, Tensor]]
Nodes: TypeAlias = tuple[dist.ProcessGroup, dist.ProcessGroup]


def one_stage(x: Tensor, layers: Layers, nodes: Nodes) -> Tensor:
    """Every all-reduce of every layer crosses from node to node."""
    x.requires_grad_()
    through(x, layers).square().sum().backward()
    return _gradient(x)


def two_stages(x: Tensor, layers: Layers, nodes: Nodes) -> Tensor:
    """One message crosses forward, and one back: between the first ranks of both nodes, which hand it round at home."""
    ranks = [dist.get_process_group_ranks(node) for node in nodes]
    stage = int(dist.get_rank() in ranks[1])
    here, there, node = ranks[stage][0], ranks[1 - stage][0], nodes[stage]
    half = len(layers) // 2
    if stage == 0:
        x.requires_grad_()
        y = through(x, layers[:half], node)  # (M, C)
        hand_over(y.detach(), here, there)
        y.backward(handed(y.detach(), here, there, node))
    else:
        x = handed(x, here, there, node).requires_grad_()  # (M, C)
        through(x, layers[half:], node).square().sum().backward()
        hand_over(_gradient(x), here, there)
    return _gradient(x)


def through(x: Tensor, layers: Layers, group: Group = None) -> Tensor:
    """(M, C) -> (M, C), each layer cut over the ranks of a group."""
    for up, down in layers:
        up_bias, down_bias = up.new_zeros(len(up)), down.new_zeros(len(down))  # (F,), (C,)
        x = x + mlp(x, shard(up, 0, group), shard(up_bias, 0, group), shard(down, 1, group), down_bias, group)
    return x


def hand_over(x: Tensor, here: int, there: int) -> None:
    if dist.get_rank() == here:
        dist.send(x.contiguous(), there)


def handed(like: Tensor, here: int, there: int, node: dist.ProcessGroup) -> Tensor:
    """What `there` has sent `here`, on every rank of a node."""
    x = torch.empty_like(like)  # (M, C)
    if dist.get_rank() == here:
        dist.recv(x, there)
    dist.broadcast(x, here, group=node)
    return x


def _gradient(x: Tensor) -> Tensor:
    assert x.grad is not None, "what came out depends on x"
    return x.grad
