"""The scaling curve on real ranks: who trains on how much, whose time counts, and that ranks train together."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
import torch
import torch.distributed as dist
from torch import nn

import kit
from kit.cost.training import elements_sent
from kit.gpt.data import batches
from kit.gpt.loop import training
from kit.gpt.model import GPT, GPTConfig
from kit.run.live import LiveRunner
from kit.topics.data_parallel.reference import AveragedAfterBackward, BucketedDDP, HookedDDP
from kit.topics.data_parallel.scaling import measure_scaling, timed_training

CONFIG = GPTConfig(n_layer=1, n_head=2, n_embd=8, block_size=8, vocab_size=11)


def told(batch: int, slowest: int) -> tuple[int, Sequence[float], int]:
    """What a rank would report, with times made up: rank `slowest` takes longest, in every second step."""
    rank = dist.get_rank()
    return 10 * batch, [0.5 + rank, 4.0 if rank == slowest else 0.5], 1


def test_a_weak_curve_gives_each_rank_the_whole_batch(three: LiveRunner) -> None:
    curve = measure_scaling(three, told, 6, 0)
    assert [point.ranks for point in curve.points] == [1, 2, 3]
    assert [point.tokens for point in curve.points] == [60, 120, 180]
    assert [point.times for point in curve.points] == [(0.5, 4.0), (1.5, 4.0), (2.5, 4.0)], "the slowest rank's"
    assert (curve.mode, curve.predicted, curve.threads) == ("weak", False, 1)
    assert curve.cores == len(os.sched_getaffinity(0))


def test_a_strong_curve_shares_one_batch(three: LiveRunner) -> None:
    curve = measure_scaling(three, told, 6, 0, mode="strong")
    assert [(point.ranks, point.tokens) for point in curve.points] == [(1, 60), (2, 60), (3, 60)]
    some = measure_scaling(three, told, 4, 0, mode="strong")
    assert [point.ranks for point in some.points] == [1, 2], "three cannot share four"


def test_what_cannot_be_is_refused(three: LiveRunner) -> None:
    with pytest.raises(ValueError, match="a batch of 4 cannot be shared evenly by 3 ranks"):
        measure_scaling(three, told, 4, 0, mode="strong", ranks=(1, 3))
    for wrong in ((2, 1), (0, 1), (1, 4), (1, 1), ()):
        with pytest.raises(ValueError, match="different numbers from 1 to 3"):
            measure_scaling(three, told, 4, 0, ranks=wrong)
    with pytest.raises(ValueError, match="not 'both'"):
        measure_scaling(three, told, 4, 0, mode="both")


def test_training_is_timed_on_every_number_of_ranks(ranks: LiveRunner) -> None:
    curve = measure_scaling(ranks, timed_training, 2, CONFIG, 3, 1)
    assert [point.tokens for point in curve.points] == [16 * point.ranks for point in curve.points]
    assert curve.points[-1].ranks == ranks.size
    for point in curve.points:
        assert len(point.times) == 3 and min(point.times) > 0
        assert 0 < curve.efficiency(point)
    assert curve.efficiency(curve.points[0]) == 1.0
    assert "core" in curve.machine() and curve.machine() in str(curve)


@pytest.mark.parametrize("wrap", [AveragedAfterBackward, HookedDDP, BucketedDDP])
def test_timed_ranks_send_what_data_parallel_training_sends(three: LiveRunner, wrap: type[nn.Module]) -> None:
    trace = kit.options(ranks=3, cluster=three).record(timed_training, 2, CONFIG, 3, 1, wrap).trace
    for rank in range(3):
        reduced = [op for op in trace.ranks[rank].operations if op.name == "all_reduce"]
        payload = sum(op.payload for op in reduced)
        parameters = GPT(CONFIG, device="meta").count()
        assert payload == 4 * 4 * parameters, "four steps, fp32"
        ring = 2 * (3 - 1) / 3 * payload
        assert ring == pytest.approx(4 * 4 * elements_sent(parameters=parameters, ranks=3), rel=1e-12)


def trained(batch: int, wrap: type[nn.Module] | None) -> tuple[list[float], torch.Tensor]:
    """Losses of this rank, and where the weights arrived, (P,)."""
    torch.manual_seed(4)
    model = GPT(CONFIG)
    row = torch.arange(3000) * 7 % 11
    own = batches(row, batch, 8, seed=1, rank=dist.get_rank(), ranks=dist.get_world_size())
    steps = training(model, own, steps=4, rate=1e-2, wrap=wrap, micro_batches=2, weight_decay=0.1)
    losses = [step.loss for step in steps]
    return losses, torch.cat([p.detach().flatten() for p in model.parameters()])


def test_ranks_with_a_share_each_arrive_where_one_with_all_arrives(three: LiveRunner) -> None:
    ((alone_losses, alone),) = kit.options(ranks=1, cluster=three).record(trained, 6, None).results
    apart = three.record(trained, 2, None).results
    together = three.record(trained, 2, BucketedDDP).results
    assert not torch.allclose(apart[0][1], apart[1][1], rtol=0, atol=1e-4), "without averaging they part"
    for _, weights in together:
        assert torch.equal(weights, together[0][1])
        # AdamW divides by the size of a gradient, so a rounding error of a tiny one shows in a step of 1e-2
        torch.testing.assert_close(weights, alone, rtol=0, atol=1e-4)
    for step, loss in enumerate(alone_losses):
        assert sum(losses[step] for losses, _ in together) / 3 == pytest.approx(loss, abs=1e-4)
