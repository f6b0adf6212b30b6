"""Overlap on real ranks with throttled links: torch's own reducer, the kit's, and none.

Backward takes its time asleep, so that nobody fights for processors: what is compared is order and share, not speed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from kit.run.live import LiveRunner
from kit.run.options import Options
from kit.topics.data_parallel.overlap import Overlaps, measure_overlap

SOME = pytest.mark.parametrize("world", [2, 3])  # one rank sends nothing, and more fight for processors

LAYERS, WIDTH, ASLEEP = 4, 64, 0.03  # s asleep in each layer's backward pass
LAYER = 4 * (WIDTH * WIDTH + WIDTH)  # bytes of its gradients
SECONDS = 0.02  # that a layer's gradients take on the slow link, so that all but the last may hide


class Slowly(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds  # type: ignore[attr-defined]
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        import time

        time.sleep(ctx.seconds)  # type: ignore[attr-defined]
        return gradient, None


class Layer(nn.Module):
    def __init__(self, width: int, seconds: float) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.seconds = seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(Slowly.apply(x, self.seconds))


def train(bucket: int | None, layers: int, width: int, seconds: float, wrapper: str) -> float:
    """Three steps; bucket: bytes, None for no overlap."""
    from torch.nn.parallel import DistributedDataParallel

    from kit.topics.data_parallel.reference import AveragedAfterBackward, BucketedDDP

    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(*(Layer(width, seconds) for _ in range(layers)))
    if bucket is None:
        model = AveragedAfterBackward(model)
    elif wrapper == "torch":
        model = DistributedDataParallel(model, bucket_cap_mb=bucket / 2**20)
    else:
        model = BucketedDDP(model, bucket_bytes=bucket, first_bucket_bytes=bucket)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        torch.manual_seed(step)
        loss = model(torch.randn(4, width)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return float(loss.detach())


@pytest.fixture
def slow(ranks: LiveRunner) -> Iterator[LiveRunner]:
    n = ranks.size
    with ranks.link(0.0, 2 * (n - 1) / n * LAYER / SECONDS):
        yield ranks


SETTINGS = {"several": LAYER, "one": 100 * LAYER, "none": None}


@pytest.fixture(params=["torch", "kit"])
def compared(slow: LiveRunner, request: pytest.FixtureRequest) -> Overlaps:
    return measure_overlap(train, SETTINGS, (LAYERS, WIDTH, ASLEEP, request.param), options=Options(cluster=slow))


@SOME
def test_buckets_hide_what_one_large_one_shows(compared: Overlaps) -> None:
    several, one, none = (compared[name] for name in SETTINGS)
    for rank in range(len(several.ranks)):
        assert several.ranks[rank].exposed_share < one.ranks[rank].exposed_share
        assert several.ranks[rank].exposed_share < none.ranks[rank].exposed_share
        assert several.ranks[rank].hidden > 0
        assert len(several.ranks[rank].flights) > 1 == len(one.ranks[rank].flights)
    assert min(rank.exposed_share for rank in one.ranks) > 0.5, "it leaves when backward is over"
    assert min(rank.exposed_share for rank in none.ranks) > 0.95


@SOME
def test_hidden_and_exposed_are_all_there_is(compared: Overlaps) -> None:
    for name in SETTINGS:
        for rank in compared[name].ranks:
            assert rank.hidden + rank.exposed == pytest.approx(rank.communication)
            inside = [(a, b) for flight in rank.flights for a, b in flight.parts]
            assert sum(b - a for a, b in inside) == pytest.approx(rank.exposed), (
                "every exposed moment has its operation"
            )
            assert rank.communication > 0.97 * LAYERS * SECONDS, "no link is faster than it was made"
            computed = sum(b - a for a, b in rank.computing)
            assert computed >= (LAYERS - 1) * ASLEEP, "asleep is the rank's own time; the first input has no gradient"


@SOME
def test_passes_and_the_label_of_the_link(compared: Overlaps) -> None:
    for name in SETTINGS:
        assert compared[name].link.startswith("links throttled to")
        for rank in compared[name].ranks:
            assert [one[0] for one in rank.passes] == ["forward", "backward", "step"]
            backward = rank.passes[1]
            assert all(backward[1] <= flight.issued <= backward[2] for flight in rank.flights)
    results = {name: run.results for name, run in compared.runs.items()}
    assert results["several"] == pytest.approx(results["none"]) and "several" in repr(compared)


def test_a_step_of_ones_choice_and_no_passes_at_full_speed(three: LiveRunner) -> None:
    recording = three.record(train, LAYER, LAYERS, WIDTH, 0.0, "kit")
    assert all(not rank.passes for rank in recording.trace.ranks), "without slow links nothing is watched"
    assert recording.trace.overlap().link == ""
    with three.link(1e-4):
        trace = three.record(train, LAYER, LAYERS, WIDTH, 0.0, "kit").trace
    assert [len(trace.overlap(step).ranks[0].flights) for step in (0, 1, 2)] == [LAYERS] * 3
