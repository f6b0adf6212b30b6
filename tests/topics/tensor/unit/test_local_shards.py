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


@pytest.fixture(autouse=True)
def group_of_four() -> Iterator[None]:
    """What collectives ask for: a group that sends nothing, since local tensors do the work."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=N, store=FakeStore())
    yield
    dist.destroy_process_group()


def on_each(shards: Sequence[Tensor]) -> Any:
    """One tensor of what the ranks hold, whose operations are those of all of them."""
    return local.LocalTensor({rank: x.detach().clone() for rank, x in enumerate(shards)}).requires_grad_()


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


def cut(whole: dict[str, Tensor], dims: dict[str, int]) -> dict[str, list[Tensor]]:
    """By rank what it holds of each tensor: its part along a dimension, or all of it."""
    return {name: list(x.chunk(N, dims[name])) if name in dims else [x] * N for name, x in whole.items()}


def assert_as_in_one_process(
    dense: Callable[..., Tensor], by_hand: Callable[..., Any], whole: dict[str, Tensor], dims: dict[str, int]
) -> None:
    """dims: along which an argument is cut; an x that is cut means a y that is."""
    y = dense(**whole)
    y.square().sum().backward()
    gradients = {name: x.grad for name, x in whole.items() if x.grad is not None}
    assert gradients.keys() == whole.keys()
    right = cut({"y": y.detach()}, {"y": dims["x"]} if "x" in dims else {})["y"]
    with local.LocalTensorMode(N):
        shards = {name: on_each(parts) for name, parts in cut(whole, dims).items()}
        found = by_hand(**shards)
        found.square().sum().backward()
    assert not torch.equal(*(shards["up"]._local_tensors[rank] for rank in (0, 1))), "the ranks hold other parts"
    for rank in range(N):
        torch.testing.assert_close(found.detach()._local_tensors[rank], right[rank], rtol=1e-10, atol=1e-10)
        for name, parts in cut(gradients, dims).items():
            got = shards[name].grad._local_tensors[rank]
            torch.testing.assert_close(got, parts[rank], rtol=1e-10, atol=1e-10, msg=name)


def test_the_mlp() -> None:
    torch.manual_seed(0)
    whole = {"x": drawn(B, T, C), "up": drawn(4 * C, C), "up_bias": drawn(4 * C)}
    whole |= {"down": drawn(C, 4 * C), "down_bias": drawn(C)}

    def dense(x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor) -> Tensor:
        return F.linear(F.gelu(F.linear(x, up, up_bias)), down, down_bias)

    assert_as_in_one_process(dense, by_hand.mlp, whole, {"up": 0, "up_bias": 0, "down": 1})


def test_the_mlp_between_regions_cut_by_position() -> None:
    torch.manual_seed(0)
    whole = {"x": drawn(B, T, C), "gain": drawn(C), "shift": drawn(C), "up": drawn(4 * C, C), "up_bias": drawn(4 * C)}
    whole |= {"down": drawn(C, 4 * C), "down_bias": drawn(C)}

    def dense(x: Tensor, gain: Tensor, shift: Tensor, up: Tensor, up_bias: Tensor, **down: Tensor) -> Tensor:
        h = F.gelu(F.linear(F.layer_norm(x, (C,), gain, shift), up, up_bias))
        return F.linear(h, down["down"], down["down_bias"])

    assert_as_in_one_process(dense, by_hand.sequence_mlp, whole, {"x": 1, "up": 0, "up_bias": 0, "down": 1})
