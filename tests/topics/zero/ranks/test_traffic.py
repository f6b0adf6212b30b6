"""Number, order and bytes of what the stages of ZeRO send are those of theory; and what a rank holds, too.

gloo's and nccl's collectives cannot be looked into, so their bytes are algorithmic: what theory says each moves. What
the traces show is how many were called, in which order, and with what. Flats are padded to a multiple of n: formulas
are asked about the padded number of parameters, and about the real one with fewer than n elements to spare for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kit
from kit.cost.training import elements_sent
from kit.run.live import LiveRunner
from kit.run.options import Options
from kit.run.results import MemoryRecording
from kit.topics.zero.cost import FP32, MIXED, model_state
from kit.trace.trace import Trace
from tests.topics.zero.ranks import counts

Run = Callable[..., Any]
FLOAT = 4


@pytest.fixture
def run(cluster_of: Callable[[int], LiveRunner], world: int) -> Run:
    """`kit.record` on the first `world` ranks of a cluster that other tests use too."""
    cluster = cluster_of(max(world, 4))
    return lambda function, *args, **kwargs: kit.options(ranks=world, cluster=cluster).record(function, *args, **kwargs)


def padded(count: int, n: int) -> int:
    return -(-count // n) * n


def calls(trace: Trace, rank: int) -> list[tuple[str, int]]:
    """(operation, elements of the whole buffer) in order; without the broadcasts of the beginning."""
    made = [op for op in trace.collectives(rank=rank) if op.name != "broadcast"]
    return [(op.name, op.payload // FLOAT) for op in made]


def sent(trace: Trace, rank: int) -> float:
    """Elements that a rank sent, by the algorithmic bytes of its operations, without the broadcasts."""
    broadcasts = sum(op.payload for op in trace.collectives(rank=rank) if op.name == "broadcast")
    n, root = trace.meta.world, rank == 0
    relayed = broadcasts if n > 1 and (root or rank < n - 1) else 0  # a chain: all but the last hand it on
    return (trace.bytes_sent(rank=rank).algorithmic - relayed) / FLOAT


def buckets(n: int) -> list[int]:
    return [padded(count, n) for count in counts.BUCKETS]


@pytest.mark.parametrize("m", [1, 3])
def test_stage_1_reduces_once_and_gathers_once(run: Run, world: int, m: int) -> None:
    trace = run(counts.one_step, 1, m, quiet=True, bucket_bytes=counts.BUCKET_BYTES).trace
    for rank in range(world):
        sizes = buckets(world)
        assert calls(trace, rank) == [
            *(("reduce_scatter", size) for size in sizes),
            *(("all_gather", size) for size in sizes),
        ]
        assert sent(trace, rank) == pytest.approx(
            elements_sent(parameters=sum(sizes), ranks=world, stage=1, micro_batches=m)
        )


@pytest.mark.parametrize("m", [1, 3])
def test_stage_2_reduces_every_micro_batch(run: Run, world: int, m: int) -> None:
    trace = run(counts.one_step, 2, m, bucket_bytes=counts.BUCKET_BYTES).trace
    sizes = buckets(world)
    for rank in range(world):
        reduced = [("reduce_scatter", size) for size in sizes] * m
        assert calls(trace, rank) == [*reduced, *(("all_gather", size) for size in sizes)]
        assert sent(trace, rank) == pytest.approx(
            elements_sent(parameters=sum(sizes), ranks=world, stage=2, micro_batches=m)
        )


@pytest.mark.parametrize("m", [1, 3])
def test_stage_3_gathers_every_layer_twice(run: Run, world: int, m: int) -> None:
    trace = run(counts.one_step, 3, m, keep_last=False, prefetch=False).trace
    layers = [padded(count, world) for count in counts.LAYERS]
    forward = [("all_gather", size) for size in layers]
    backward = [(name, size) for size in reversed(layers) for name in ("all_gather", "reduce_scatter")]
    for rank in range(world):
        assert calls(trace, rank) == (forward + backward) * m
        assert sent(trace, rank) == pytest.approx(
            elements_sent(parameters=sum(layers), ranks=world, stage=3, micro_batches=m)
        )


@pytest.mark.parametrize("m", [1, 3])
def test_stage_3_that_keeps_the_last_layer_gathers_it_once(run: Run, world: int, m: int) -> None:
    """And with prefetching the next layer is asked for before this one's gradients are summed."""
    trace = run(counts.one_step, 3, m).trace
    first, second, third, last = (padded(count, world) for count in counts.LAYERS)
    order = [("all_gather", size) for size in (first, second, third, last)]
    order += [("all_gather", third), ("reduce_scatter", last), ("all_gather", second), ("reduce_scatter", third)]
    order += [("all_gather", first), ("reduce_scatter", second), ("reduce_scatter", first)]
    whole = elements_sent(parameters=first + second + third + last, ranks=world, stage=3, micro_batches=m)
    for rank in range(world):
        assert calls(trace, rank) == order * m
        assert sent(trace, rank) == pytest.approx(whole - m * last * (world - 1) / world)


def test_the_padding_is_all_that_is_sent_beyond_the_formula(run: Run, world: int) -> None:
    for stage, flats in ((1, 1), (2, 1), (3, len(counts.LAYERS))):
        options = {"keep_last": False} if stage == 3 else {}
        trace = run(counts.one_step, stage, 1, **options).trace
        right = elements_sent(parameters=counts.P, ranks=world, stage=stage)
        for rank in range(world):
            assert 0 <= sent(trace, rank) - right < 3 * flats * world


def test_sums_travel_while_backward_goes_on(run: Run, world: int) -> None:
    """The first bucket is on its way before the last gradient is there; in stage 3 the next layer comes meanwhile."""
    for stage in (1, 2, 3):
        options = {} if stage == 3 else {"bucket_bytes": counts.BUCKET_BYTES}
        recording = run(counts.one_step, stage, 1, **options)
        for rank in range(world):
            began, last = recording.results[rank]
            sums = [op for op in recording.trace.collectives(rank=rank) if op.name == "reduce_scatter"]
            assert all(op.issued > began for op in sums)
            assert sum(op.issued < last for op in sums) == len(sums) - 1


def test_unused_and_clip_cost_one_small_all_reduce_each(run: Run, world: int) -> None:
    trace = run(counts.one_step, 2, 1, unused="zeros", clip=1.0).trace
    for rank in range(world):
        size = padded(counts.P, world)
        wanted = [("reduce_scatter", size), ("all_reduce", 1), ("all_reduce", counts.K), ("all_gather", size)]
        assert calls(trace, rank) == wanted


@pytest.mark.parametrize("precision", ["fp32", "mixed"])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_bytes_held_are_those_of_the_formulas(run: Run, world: int, stage: int, precision: str) -> None:
    """After backward: exact for the padded parameters, and for the real ones but for the padding."""
    kinds = MIXED if precision == "mixed" else FP32
    flats = counts.LAYERS if stage == 3 else [counts.P]
    for rank, found in enumerate(run(counts.held, stage, precision).results):
        held: counts.Held = found["after backward"]
        right = model_state(sum(padded(count, world) for count in flats), ranks=world, stage=stage, precision=kinds)
        assert (held.parameters, held.gradients, held.optimizer) == (right.weights, right.gradients, right.optimizer)
        assert (held.gathered, held.buckets) == (0, 0)
        plain = model_state(counts.P, ranks=world, stage=stage, precision=kinds, rank=rank)
        assert 0 <= sum(held[:3]) - plain.total <= world * len(flats) * 16
        assert found["nothing else"] == 0, "tensors that are not accounted for"
        before = found["before backward"]
        assert before.gradients == (right.gradients if stage == 1 else 0), "stage 1 has one buffer, for good"
        assert found["at most gathered"] == (0 if stage < 3 else two_largest(world) * kinds.weight)


def two_largest(n: int) -> int:
    """Elements of the two neighbours that are largest together: the layer in hand and the one that is fetched."""
    sizes = [padded(count, n) for count in counts.LAYERS]
    return max(a + b for a, b in zip(sizes, sizes[1:], strict=False))


def test_without_prefetching_one_layer_is_whole(run: Run, world: int) -> None:
    for found in run(counts.held, 3, "fp32", prefetch=False).results:
        assert found["at most gathered"] == padded(max(counts.LAYERS), world) * FLOAT


EVEN = (24,) * 13  # 12 layers of 600 parameters


def test_stage_2_lets_go_of_whole_gradients_on_the_way(run: Run, world: int) -> None:
    """At no moment of backward more than the shards, and three layers: one travels, one is packed from the third."""
    layer = padded(600, world) * FLOAT
    for found in run(counts.held, 2, "fp32", EVEN, bucket_bytes=layer).results:
        assert 12 * layer // world < found["most gradients"] <= 12 * layer // world + 3 * layer + FLOAT * world
    for found in run(counts.held, 1, "fp32", EVEN, bucket_bytes=layer).results:
        assert found["most gradients"] >= 12 * layer, "stage 1 has all of them"


@pytest.mark.parametrize("world", [3])
def test_an_account_of_memory_that_knows_nothing_of_zero_agrees(cluster_of: Any, world: int) -> None:
    """Every storage torch makes is followed: at most those of the formula, and buckets or layers in hand, to 5 %."""
    count, layer = 12 * 600, 600 * FLOAT
    on_top = {1: layer, 2: 3 * layer, 3: 5 * layer}  # gathered, travelling, and just coming out of autograd
    for stage in (1, 2, 3):
        options = {} if stage == 3 else {"bucket_bytes": layer}
        how = Options(ranks=world, memory=True, cluster=cluster_of(max(world, 4)))
        accounted = how.record(counts.train, stage, EVEN, **options)
        assert isinstance(accounted, MemoryRecording)
        formula = model_state(count, ranks=world, stage=stage, precision=FP32).total
        for rank in range(world):
            steps = accounted.holdings.ranks[rank]
            last = steps[-1]
            assert last.parameters + last.gradients + last.optimizer_state == pytest.approx(formula, rel=0.05)
            most = max(h.parameters + h.gradients + h.optimizer_state + h.buffers for h in steps[len(steps) // 2 :])
            assert most <= 1.05 * formula + on_top[stage], stage
