"""Data parallel training is what a single process does with the whole batch, and what torch's own wrapper does.

Tolerance. The two differ in the order in which at most 24 samples' gradients are summed: by 24 x 1.1e-16 of their
size, which is below 1, at each step (Higham, Accuracy and Stability of Numerical Algorithms, 4.2). A gradient moves
parameters by lr / (1 - momentum) = 0.5 of it in the long run, so 20 steps make 2.6e-14; the steps that follow may carry
a difference on, and 1e-12 leaves a factor of 40 for that. Without averaging the states are further apart than 1e-2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import kit
from kit.run.live import LiveRunner
from kit.topics.collectives.reference import ring_all_reduce
from kit.topics.data_parallel.reference.built_in import at_once
from kit.trace.facts import Operation
from kit.trace.trace import Trace
from kit.trace.traffic import algorithmic_bytes
from tests.topics.collectives import traffic
from tests.topics.data_parallel.ranks import training

TOLERANCE = 1e-12
WAYS = [*training.WRAPPERS, "by hand", "torch"]
FLOAT64 = 8
Run = Callable[..., Any]


@pytest.fixture
def run(cluster_of: Callable[[int], LiveRunner], world: int) -> Run:
    """`kit.record` on the first `world` ranks of a cluster that other tests of this file use too."""
    cluster = cluster_of(max(world, 4))
    return lambda function, *args, **kwargs: kit.options(ranks=world, cluster=cluster).record(function, *args, **kwargs)


def apart(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max())


@pytest.mark.parametrize(("world", "micro_batches"), [(1, 3), (2, 1), (2, 3), (3, 1), (3, 3), (4, 1), (4, 3)])
def test_twenty_steps_are_those_of_one_process_and_of_torch(run: Run, world: int, micro_batches: int) -> None:
    by_rank = run(training.every_way, micro_batches).results
    first, others = by_rank[0], by_rank[1:]
    for other in others:
        assert apart(other["state before"], first["state before"]) > 0.1, "ranks that begin alike prove nothing"
        assert apart(other["gradient before"], first["gradient before"]) > 0.01
        assert apart(other["never averaged"], first["never averaged"]) > 0.01
    right = training.serial(first["state before"], world, micro_batches)
    assert world == 1 or apart(first["never averaged"], right) > 0.01, "the tolerance could not tell"
    for name in training.WRAPPERS:
        for found in by_rank:
            assert torch.equal(found[f"state after wrapping, {name}"], first["state before"]), name
    for name in WAYS:
        assert all(torch.equal(found[name], first[name]) for found in others), f"{name}: the ranks disagree"
        assert apart(first[name], right) < TOLERANCE, f"{name}: not what one process does"
        assert apart(first[name], first["torch"]) < TOLERANCE, f"{name}: not what torch does"


def calls(trace: Trace, rank: int, name: str) -> list[Operation]:
    return [operation for operation in trace.collectives(rank=rank) if operation.name == name]


def algorithmic(trace: Trace, rank: int) -> float:
    """Algorithmic bytes that a rank sends in its all-reduces."""
    return sum(algorithmic_bytes(operation)[0] for operation in calls(trace, rank, "all_reduce"))


REPEATS = [(1, True, 1), (3, True, 1), (3, False, 3)]  # micro-batches, local before the last, how often it averages
COUNTS = list(training.TRAINED.values())
# 400 bytes hold out.bias and out.weight (384), then hidden.bias and hidden.weight (392); the matrix (528) is alone
SIZES = {
    "after backward": [FLOAT64 * count for count in COUNTS],
    "hooks": [FLOAT64 * count for count in reversed(COUNTS)],
    "one bucket": [FLOAT64 * training.P],
    "many buckets": [384, 392, 528],
}


@pytest.mark.parametrize(("micro_batches", "local", "times"), REPEATS)
def test_number_order_and_bytes_of_built_in_sums(
    run: Run, world: int, micro_batches: int, local: bool, times: int
) -> None:
    torchs = run(training.one_step, "torch", micro_batches, local).trace
    for name, sizes in SIZES.items():
        trace = run(training.one_step, name, micro_batches, local).trace
        for rank in range(world):
            assert [op.payload for op in calls(trace, rank, "all_reduce")] == sizes * times, name
            right = times * traffic.averaging_algorithmic(world, training.P, FLOAT64)
            assert algorithmic(trace, rank) == pytest.approx(right), name
            assert algorithmic(trace, rank) == pytest.approx(algorithmic(torchs, rank)), "torch moves other bytes"


@pytest.mark.parametrize(("micro_batches", "local", "times"), REPEATS)
def test_number_and_bytes_of_messages_in_rings(
    run: Run, world: int, micro_batches: int, local: bool, times: int
) -> None:
    for name, sizes in SIZES.items():
        ring = {"all_reduce": ring_all_reduce} if name == "after backward" else {"launch": at_once(ring_all_reduce)}
        trace = run(training.one_step, name, micro_batches, local, **ring).trace
        counts = [size // FLOAT64 for size in sizes] * times
        for rank in range(world):
            sent = [message.nbytes for message in trace.messages(rank=rank) if message.source == rank]
            right = traffic.averaging(world, rank, counts, FLOAT64)
            assert (len(sent), sum(sent)) == (right.sent, right.bytes_sent), name
            assert trace.bytes_sent(rank=rank).wire == right.bytes_sent, name
            assert calls(trace, rank, "all_reduce") == [], name


def test_the_state_is_sent_once_and_buffers_before_averaged_steps(run: Run, world: int) -> None:
    """Six parameters, the frozen one too and the shared one once, and the buffer; then the buffer again."""
    state, buffer = [48, 528, 336, 56, 336, 48, 48], 48
    for micro_batches, local, more in REPEATS:
        trace = run(training.one_step, "hooks", micro_batches, local).trace
        for rank in range(world):
            sent = calls(trace, rank, "broadcast")
            assert [op.payload for op in sent] == state + [buffer] * more
            assert {op.root for op in sent} == {0}


def test_what_travels_while_backward_goes_on(run: Run, world: int) -> None:
    for name in SIZES:
        recording = run(training.one_step, name, 1)
        for rank, (began, last) in enumerate(recording.results):
            sums = calls(recording.trace, rank, "all_reduce")
            assert all(op.issued > began for op in sums)
            early = [op for op in sums if op.issued < last]
            assert len(early) == {"after backward": 0, "one bucket": 0, "hooks": 4, "many buckets": 2}[name]
            assert all(op.waits and op.waits[0][0] > last for op in sums), "it waited before all was under way"
