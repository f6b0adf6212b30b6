"""What a step costs: against published logs, torch's own counters, a hand count of ring messages, worked examples."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from kit.cost import network
from kit.cost.machines import peak
from kit.cost.overlap import bucket_sizes, overlap
from kit.cost.training import (
    collectives,
    communication_seconds,
    elements_sent,
    elements_sent_by_zero_redundancy_optimizer,
    flops_per_token,
    mfu,
    scaled_rate,
)
from kit.gpt.model import GPT, GPTConfig
from kit.parallel import traffic


def test_mfu_of_the_talks_log() -> None:
    """wordplay on 4 A100, bf16: 231,000 tokens/s on each, 46 % (the log of the ALCF talk, 2024)."""
    flops = flops_per_token(parameters=85_003_776, layers=12, channels=768, sequence=1024)
    found = mfu(tokens_per_second=4 * 231_000, flops_per_token=flops, peak=peak("A100-40", "bf16"), devices=4)
    assert round(100 * found) == 46


def test_flops_are_those_that_torch_counts() -> None:
    """Its counter knows matrix products. What multiplies nothing (positions, norms) is left out of P for this."""
    config = GPTConfig(n_layer=3, n_head=2, n_embd=16, block_size=20, vocab_size=11, bias=False)
    model = GPT(config)
    tokens = torch.randint(11, (4, 20))
    counter = FlopCounterMode(display=False)
    with counter, sdpa_kernel(SDPBackend.MATH):
        _, loss = model(tokens, tokens)
        assert loss is not None
        loss.backward()
    matrices = sum(p.numel() for name, p in model.named_parameters() if p.dim() == 2 and "positions" not in name)
    assert counter.get_total_flops() == 4 * 20 * flops_per_token(
        parameters=matrices, layers=3, channels=16, sequence=20
    )


def ring_elements(operation: str, n: int, count: int) -> int:
    """What a rank of kit.parallel's rings sends, from its own exact count; n divides count here."""
    if operation == "all_gather":
        return traffic.ring_all_gather(n, 0, [count // n] * n, itemsize=1).bytes_sent
    rings = {"all_reduce": traffic.ring_all_reduce, "reduce_scatter": traffic.ring_reduce_scatter}
    return rings[operation](n, 0, count, itemsize=1).bytes_sent


# by hand, for P = 60 on 3 ranks: one whole trip of P by a ring is P (N-1)/N = 40 elements
@pytest.mark.parametrize(
    ("stage", "micro_batches", "trips"),
    [(0, 1, 2), (0, 4, 2), (1, 1, 2), (1, 4, 2), (2, 1, 2), (2, 4, 5), (3, 1, 3), (3, 4, 12)],
)
def test_elements_sent_by_hand_and_as_the_rings_send_them(stage: int, micro_batches: int, trips: int) -> None:
    sent = elements_sent(parameters=60, ranks=3, stage=stage, micro_batches=micro_batches)
    assert sent == 40 * trips
    for pieces in (1, 5):
        listed = collectives(parameters=60, ranks=3, stage=stage, micro_batches=micro_batches, pieces=pieces)
        assert sum(c.count * ring_elements(c.operation, 3, int(c.elements)) for c in listed) == sent


def test_elements_come_near_the_literatures_2_2_2_3_for_many_ranks() -> None:
    shares = [elements_sent(parameters=1000, ranks=1000, stage=stage) / 1000 for stage in range(4)]
    assert shares == pytest.approx([1.998, 1.998, 1.998, 2.997], rel=1e-12)
    assert [elements_sent(parameters=1000, ranks=1, stage=stage) for stage in range(4)] == [0, 0, 0, 0]


def test_ddp_without_no_sync_reduces_every_micro_batch() -> None:
    assert elements_sent(parameters=60, ranks=3, micro_batches=4, every_micro_batch=True) == 40 * 8


def test_zero_redundancy_optimizer_sends_half_as_much_again() -> None:
    """All-reduce, then each of 3 ranks' 20 elements down a chain 0-1-2-0...: a rank sends all but what ends with it."""
    chains = Counter[int]()
    for root in range(3):
        for hop in range(2):
            chains[(root + hop) % 3] += 20
    assert set(chains.values()) == {40}
    assert elements_sent_by_zero_redundancy_optimizer(parameters=60, ranks=3) == 80 + chains[0]


def test_stage_3_gathers_2l_times_or_one_less() -> None:
    def counts(**how: int | bool) -> dict[str, int]:
        return {c.operation: c.count for c in collectives(parameters=120, ranks=2, stage=3, pieces=6, **how)}

    assert counts() == {"all_gather": 12, "reduce_scatter": 6}
    assert counts(keep_last=True) == {"all_gather": 11, "reduce_scatter": 6}
    assert counts(micro_batches=3, keep_last=True) == {"all_gather": 33, "reduce_scatter": 18}


def test_seconds_by_hand() -> None:
    """4 ranks, 10 µs, 1 GB/s, a million fp32: 6 steps of a quarter of 4 MB; in stage 3 nine such steps."""
    link = {"parameters": 10**6, "ranks": 4, "latency": 1e-5, "bandwidth": 1e9}
    step = 1e-5 + 1e-3
    assert communication_seconds(**link) == pytest.approx(6 * step)
    for stage in (1, 2):
        assert communication_seconds(**link, stage=stage) == pytest.approx(6 * step)
    assert communication_seconds(**link, stage=3) == pytest.approx(9 * step)
    assert communication_seconds(**link, stage=2, micro_batches=3) == pytest.approx(12 * step)
    assert communication_seconds(**link, itemsize=2) == pytest.approx(6 * (1e-5 + 5e-4))
    # in ten pieces the bytes are the same and the latencies ten times as many
    assert communication_seconds(**link, pieces=10) == pytest.approx(60 * 1e-5 + 6e-3)
    tree = {"all_reduce": network.tree_all_reduce}
    assert communication_seconds(**link, algorithms=tree) == pytest.approx(4 * (1e-5 + 4e-3))


def test_buckets_are_those_of_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    for cap, first in ((400, 100), (1000, 1000), (1, 1), (10**6, 10)):
        counts = torch.randint(1, 120, (40,), generator=generator).tolist()
        tensors = [torch.empty(count) for count in counts]
        assigned, _ = dist._compute_bucket_assignment_by_size(tensors, [first, cap])
        theirs = sorted((min(bucket), sum(4 * counts[i] for i in bucket)) for bucket in assigned)
        assert bucket_sizes([4 * count for count in counts], cap=cap, first=first) == [size for _, size in theirs]


def test_a_bucket_that_is_never_filled_is_still_sent() -> None:
    assert bucket_sizes([3, 3, 3], cap=100, first=4) == [6, 3]
    assert bucket_sizes([3], cap=100, first=100) == [3]
    assert bucket_sizes([]) == []


def slow(n: int, nbytes: float, latency: float, bandwidth: float) -> float:
    """A link without ranks: a + S b."""
    return latency + nbytes / bandwidth


LINK = {"ranks": 2, "latency": 0.0, "bandwidth": 1.0, "algorithm": slow}


def test_overlap_by_hand() -> None:
    """Ten seconds of backward. Link slower than computing: it starts at the first bucket and never rests."""
    one = overlap([10.0], backward=10.0, **LINK)
    assert (one.communication, one.exposed, one.hidden, one.seconds) == (10, 10, 0, 20), "one bucket hides nothing"
    five = overlap([2.0] * 5, backward=10.0, **LINK)
    assert [(b.ready, b.begins, b.ends) for b in five.buckets] == [
        (2, 2, 4),
        (4, 4, 6),
        (6, 6, 8),
        (8, 8, 10),
        (10, 10, 12),
    ]
    assert (five.exposed, five.hidden) == (2, 8), "the last bucket at least"
    crowded = overlap([4.0] * 5, backward=10.0, **LINK)
    assert [(b.ready, b.begins, b.ends) for b in crowded.buckets] == [
        (2, 2, 6),
        (4, 6, 10),
        (6, 10, 14),
        (8, 14, 18),
        (10, 18, 22),
    ]
    assert crowded.exposed == 12
    uneven = overlap([1.0, 9.0], backward=10.0, **LINK)
    assert uneven.exposed == 9


def test_overlap_agrees_with_a_clock_that_ticks() -> None:
    """Another way to the same numbers: time in small ticks, a link that works whenever a full bucket is there."""
    sizes, backward, tick = [3, 1, 4, 1, 5], 28, 1
    full_at = [backward * done / 14 for done in itertools.accumulate(sizes)]
    waiting: list[int] = []
    clock, left, sent = 0, 0, 0
    while sent < len(sizes):
        waiting += [2 * size for size, at in zip(sizes, full_at, strict=True) if clock - tick < at <= clock]
        if left == 0 and waiting:
            left = waiting.pop(0)
        clock += tick
        if left > 0:
            left -= tick
            sent += left == 0
    found = overlap(sizes, backward=backward, ranks=2, latency=0.0, bandwidth=0.5, algorithm=slow)
    assert found.seconds == clock


def test_too_many_buckets_cost_their_latency() -> None:
    def exposed(count: int) -> float:
        return overlap([1e7 / count] * count, backward=1e-3, ranks=4, latency=1e-5, bandwidth=1e10).exposed

    assert exposed(2) < exposed(1) < exposed(50)


def test_the_rules_for_learning_rates() -> None:
    assert scaled_rate(0.1, ranks=16) == pytest.approx(1.6)
    assert scaled_rate(0.1, ranks=16, rule="sqrt") == pytest.approx(0.4)
    assert scaled_rate(0.1, ranks=16, rule="same") == scaled_rate(0.1, ranks=1) == 0.1
    with pytest.raises(ValueError, match="'linear', 'sqrt' or 'same', not 'cubic'"):
        scaled_rate(0.1, ranks=2, rule="cubic")


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="stage is 0 .*not 5"):
        elements_sent(parameters=1, ranks=1, stage=5)
    with pytest.raises(ValueError, match="ranks is 1 or more, not 0"):
        elements_sent(parameters=1, ranks=0)
    with pytest.raises(ValueError, match="every_micro_batch is for stage 0"):
        elements_sent(parameters=1, ranks=1, stage=2, every_micro_batch=True)
    with pytest.raises(ValueError, match="keep_last is for stage 3"):
        collectives(parameters=1, ranks=1, stage=1, keep_last=True)
    with pytest.raises(ValueError, match="peak is above 0"):
        mfu(tokens_per_second=1, flops_per_token=1, peak=0)
    with pytest.raises(ValueError, match="at least one bucket"):
        overlap([], backward=1.0, ranks=2, latency=0.0, bandwidth=1.0)
    with pytest.raises(ValueError, match="at least a byte"):
        bucket_sizes([1], cap=0)


NAN = float("nan")


@pytest.mark.parametrize(
    "call",
    [
        lambda: elements_sent(parameters=NAN, ranks=2),
        lambda: flops_per_token(parameters=-1, layers=1, channels=1, sequence=1),
        lambda: mfu(tokens_per_second=-1, flops_per_token=1, peak=1),
        lambda: mfu(tokens_per_second=1, flops_per_token=1, peak=NAN),
        lambda: scaled_rate(NAN, ranks=2),
        lambda: communication_seconds(parameters=5, ranks=2, latency=NAN, bandwidth=1.0),
        lambda: overlap([NAN], backward=1.0, ranks=2, latency=0.0, bandwidth=1.0),
    ],
)
def test_a_nan_is_refused_and_not_handed_on(call: Callable[[], float]) -> None:
    with pytest.raises(ValueError):
        call()
