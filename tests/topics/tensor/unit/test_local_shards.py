"""The functions by hand on torch's local tensors, where one process holds the shards of all ranks: another oracle.

A tolerance of 1e-10 as in the tests with ranks, and for the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from kit.topics.tensor.reference import by_hand

local = pytest.importorskip("torch.distributed._local_tensor", reason="this torch has no local tensors")
Tensor = torch.Tensor
N, B, T, C = 4, 2, 8, 8


@pytest.fixture
def on_each() -> Iterator[Callable[[Sequence[Tensor]], Any]]:
    """Makes one tensor of what four ranks hold, whose operations are those of all of them."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=N, store=FakeStore())
    try:
        with local.LocalTensorMode(N):
            yield lambda shards: local.LocalTensor(
                {rank: x.detach().clone() for rank, x in enumerate(shards)}
            ).requires_grad_()
    finally:
        dist.destroy_process_group()


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


def assert_ranks(found: Any, right: Sequence[Tensor]) -> None:
    for rank, wanted in enumerate(right):
        torch.testing.assert_close(found._local_tensors[rank], wanted, rtol=1e-10, atol=1e-10)


def test_the_mlp(on_each: Callable[[Sequence[Tensor]], Any]) -> None:
    with local.maybe_disable_local_tensor_mode():
        torch.manual_seed(0)
        x, up, up_bias = drawn(B, T, C), drawn(4 * C, C), drawn(4 * C)
        down, down_bias = drawn(C, 4 * C), drawn(C)
        right = F.linear(F.gelu(F.linear(x, up, up_bias)), down, down_bias)
        right.square().sum().backward()
    shards = [
        on_each([x] * N),
        on_each(up.chunk(N)),
        on_each(up_bias.chunk(N)),
        on_each(down.chunk(N, 1)),
        on_each([down_bias] * N),
    ]
    assert not torch.equal(shards[1]._local_tensors[0], shards[1]._local_tensors[1])
    y = by_hand.mlp(*shards)
    y.square().sum().backward()
    assert_ranks(y.detach(), [right.detach()] * N)
    gradients = [p.grad for p in (x, up, up_bias, down, down_bias) if p.grad is not None]
    whole, up_shards, bias_shards, down_shards, equal = (
        [gradients[0]] * N,
        gradients[1].chunk(N),
        gradients[2].chunk(N),
        gradients[3].chunk(N, 1),
        [gradients[4]] * N,
    )
    for shard, wanted in zip(shards, (whole, up_shards, bias_shards, down_shards, equal), strict=True):
        assert_ranks(shard.grad, wanted)


def test_the_mlp_between_regions_cut_by_position(on_each: Callable[[Sequence[Tensor]], Any]) -> None:
    with local.maybe_disable_local_tensor_mode():
        torch.manual_seed(0)
        x, gain, shift = drawn(B, T, C), drawn(C), drawn(C)
        up, up_bias, down, down_bias = drawn(4 * C, C), drawn(4 * C), drawn(C, 4 * C), drawn(C)
        normed = F.layer_norm(x, (C,), gain, shift)
        right = F.linear(F.gelu(F.linear(normed, up, up_bias)), down, down_bias)
        right.square().sum().backward()
    shards = [
        on_each(x.chunk(N, 1)),
        on_each([gain] * N),
        on_each([shift] * N),
        on_each(up.chunk(N)),
        on_each(up_bias.chunk(N)),
        on_each(down.chunk(N, 1)),
        on_each([down_bias] * N),
    ]
    y = by_hand.sequence_mlp(*shards)
    y.square().sum().backward()
    assert_ranks(y.detach(), right.detach().chunk(N, 1))
    wholes = (x, gain, shift, up, up_bias, down, down_bias)
    dx, dgain, dshift, dup, dup_bias, ddown, ddown_bias = [p.grad for p in wholes if p.grad is not None]
    cut = (
        dx.chunk(N, 1),
        [dgain] * N,
        [dshift] * N,
        dup.chunk(N),
        dup_bias.chunk(N),
        ddown.chunk(N, 1),
        [ddown_bias] * N,
    )
    for shard, wanted in zip(shards, cut, strict=True):
        assert_ranks(shard.grad, wanted)
