"""Layers in shards are what the whole layers are, in values and in every gradient; so are torch's DTensor's.

In float64 sums of at most 64 products in another order differ by 64 x 1.1e-16 of their size (Higham, Accuracy and
Stability of Numerical Algorithms, 4.2), which is of the order of 10 to 1000 here: 1e-10 leaves room for two layers of
it, and a missing sum is further away than 1e-3. The GPT's loss is in fp32, whose rounding of 6e-8 its gradients have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kit
from kit.run.live import LiveRunner
from kit.topics.tensor import cost
from tests.topics.tensor.ranks import models
from tests.topics.tensor.ranks.models import Found

EXACT, THROUGH_FP32 = 1e-10, 1e-5
DEGREES = pytest.mark.parametrize("world", [1, 2, 4])
BOTH = pytest.mark.parametrize("order", models.ORDERS)
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def four(cluster_of: Callable[[int], LiveRunner]) -> LiveRunner:
    """Four ranks that have what they compare with imported: once, and not each of them."""
    return cluster_of(4).reset(preload=("torch.distributed.tensor.parallel", "torch._dynamo"))


@pytest.fixture
def run(four: LiveRunner, world: int) -> Run:
    """`kit.record` on the first `world` ranks."""
    return lambda function, *args: kit.options(ranks=world, cluster=four).record(function, *args)


def assert_whole(by_rank: list[Found], right: Found, tolerance: float = EXACT) -> None:
    for found in by_rank:
        assert found.keys() == right.keys()
        for name, got in found.items():
            torch.testing.assert_close(got, right[name], rtol=tolerance, atol=tolerance, msg=name)


@DEGREES
@BOTH
def test_layers_are_those_of_one_process(run: Run, world: int, order: str) -> None:
    results = run(models.all_layers, order).results
    for name in results[0]:
        kind, _, key_heads = name.partition(", ")
        right = models.serial_layer(kind, int(key_heads or models.H))
        assert_whole([found[name] for found in results], right)
        assert all(float(g.abs().max()) > 1e-3 for part, g in right.items() if part != "k.bias"), "0 proves nothing"


@DEGREES
def test_layers_are_those_of_dtensor(run: Run, world: int) -> None:
    for found in run(models.every_dtensor).results:
        for name, theirs in found.items():
            assert_whole([theirs], models.serial_layer(name))


def test_by_hand_is_the_same_and_no_rank_finds_it_alone(four: LiveRunner) -> None:
    right = models.serial_layer("mlp")
    for found in kit.options(ranks=2, cluster=four).record(models.functions_by_hand).results:
        for ours, name in (("mlp", "y"), ("dx", "dx")):
            torch.testing.assert_close(found[ours], right[name], rtol=EXACT, atol=EXACT)
            assert float((found[f"{ours} alone"] - right[name]).abs().max()) > 0.1
        layer, x = models.dense("attention")
        torch.nn.init.zeros_(layer.out.bias)
        for name in "qkv":
            torch.nn.init.zeros_(getattr(layer, name).bias)
        torch.testing.assert_close(found["attention"], layer(x).detach())


@DEGREES
@BOTH
def test_a_gpt_is_that_of_one_process(run: Run, world: int, order: str) -> None:
    for tied in (True, False):
        right = models.serial_gpt(tied)
        other = models.serial_gpt(tied, seed=1)
        assert abs(float(right["loss"] - other["loss"])) > 1e-2, "other weights lose otherwise"
        assert_whole(run(models.parallel_gpt, order, tied).results, right, THROUGH_FP32)


def test_each_group_trains_a_model_of_its_own(four: LiveRunner) -> None:
    results = kit.options(cluster=four).record(models.of_two_groups).results
    for pair in range(2):
        right = models.serial_gpt(True, seed=pair)
        assert_whole([found for rank in (2 * pair, 2 * pair + 1) for found in results[rank]], right, THROUGH_FP32)


@pytest.mark.parametrize("world", [2, 4])
@BOTH
def test_traffic_is_that_of_theory(run: Run, world: int, order: str) -> None:
    for bias in (True, False):
        trace = run(models.step_of_gpt, order, bias).trace
        sequence = order == "by position"
        tokens = models.B * models.T
        calls = cost.gpt(tokens, models.C, models.L, block_size=models.T + 1, sequence=sequence, bias=bias)
        for rank in range(world):
            made = [(op.name, op.payload) for op in trace.collectives(rank=rank)]
            wanted = [(call.name, call.elements * (4 if call.elements == tokens else 8)) for call in calls]
            assert Counter(made) == Counter(wanted)
            doubles = [call for call in calls if call.elements != tokens]
            floats = [call for call in calls if call.elements == tokens]  # the loss is in fp32
            theory = cost.bytes_sent(doubles, world, 8) + cost.bytes_sent(floats, world, 4)
            assert trace.bytes_sent(rank=rank).algorithmic == pytest.approx(theory)


@BOTH
def test_dropout_agrees_where_ranks_hold_the_same(four: LiveRunner, order: str) -> None:
    found = kit.options(ranks=3, cluster=four).record(models.dropped, order).results
    pairs = [(a, b) for a in range(3) for b in range(a)]
    for call in ("first", "second"):
        alike = [torch.equal(found[a][f"outside {call}"], found[b][f"outside {call}"]) for a, b in pairs]
        assert alike == [order == "whole"] * 3
        assert not any(torch.equal(found[a][f"inside {call}"], found[b][f"inside {call}"]) for a, b in pairs)
    torch.manual_seed(7)
    for mine in found:
        assert not torch.equal(mine["outside first"], mine["outside second"]), "draws go on"
        assert torch.equal(mine["torch"], torch.rand(4, generator=torch.Generator().manual_seed(7))), "left as it was"


@BOTH
def test_dropout_is_drawn_again_from_the_same_seed(four: LiveRunner, order: str) -> None:
    for losses in kit.options(ranks=2, cluster=four).record(models.trained_with_dropout, order).results:
        first, second = losses[:2], losses[2:]
        assert first == second and first[0] != first[1]


def test_what_cannot_be_shared_is_refused_in_words(four: LiveRunner) -> None:
    told = kit.options(cluster=four).record(models.refusals).results[0]
    assert told == [
        "attention of 2 heads, of which none is cut: 4 ranks cannot share 2 evenly; make it a multiple of 4, 4 for"
        " example",
        "a vocabulary of 25 (add tokens that never occur): 4 ranks cannot share 25 evenly; make it a multiple of 4, 24"
        " or 28 for example",
        "4 ranks cannot share 3 heads of keys and values, nor hold copies of them evenly: one number divides the other",
        "8 heads cannot share 6 of keys and values evenly: key_heads is a divisor of heads",
        "6 positions: 4 ranks cannot share 6 evenly; make it a multiple of 4, 4 or 8 for example",
        "dimension 1 of a tensor of shape (3, 5): 4 ranks cannot share 5 evenly; make it a multiple of 4, 4 or 8 for"
        " example",
    ]


def test_a_refusal_is_told_by_rank_and_leaves_a_working_cluster(four: LiveRunner) -> None:
    run = kit.options(cluster=four)
    with pytest.raises(kit.RankError, match=r"rank 0 failed.*4 ranks cannot share 2 evenly; make it a multiple of 4"):
        run.record(models.too_few_heads)
    assert_whole(run.record(models.parallel_gpt, "whole", True).results, models.serial_gpt(True), THROUGH_FP32)
