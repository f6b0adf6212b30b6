"""Recording at full speed: results, what was sent, and the same sentences when it goes wrong."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.profiler import record_function

import kit
from kit.run.errors import RankError
from kit.run.live import LiveRunner
from kit.topics.collectives.reference import ring_all_reduce


def sum_up(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x)
    return x


def speak() -> None:
    print("I am", dist.get_rank())


def sizes() -> tuple[int, int]:
    return dist.get_rank(), dist.get_world_size()


def asynchronous() -> float:
    x = torch.ones(4)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    future = dist.all_reduce(x, async_op=True).get_future()
    future.wait()
    return float(x[0])


def test_results_and_operations(ranks: LiveRunner) -> None:
    recording = ranks.record(sum_up, torch.ones(4))
    assert [r.tolist() for r in recording.results] == [[float(ranks.size)] * 4] * ranks.size
    for rank in recording.trace.ranks:
        (operation,) = rank.operations
        assert (operation.name, operation.payload, operation.ranks) == ("all_reduce", 16, tuple(range(ranks.size)))
        assert operation.place is not None and operation.place.line == sum_up.__code__.co_firstlineno + 1
        assert operation.ended is not None and operation.issued < operation.ended


def test_the_ring_sends_what_theory_says(ranks: LiveRunner) -> None:
    n, count = ranks.size, 840  # divides by every n up to 8
    recording = ranks.record(ring_all_reduce, torch.ones(count), None)
    for rank in range(n):
        assert len(recording.trace.messages(rank)) == 2 * 2 * (n - 1), "sent and received"
        assert recording.trace.bytes_sent(rank).wire == 2 * (n - 1) * count * 4 // n


def test_output_is_shown_with_its_rank(three: LiveRunner, capsys: object) -> None:
    three.record(speak)
    shown = capsys.readouterr().out.splitlines()  # type: ignore[attr-defined]
    assert shown == ["[rank 0] I am 0", "[rank 1] I am 1", "[rank 2] I am 2"]


def test_a_world_smaller_than_the_cluster_and_back(three: LiveRunner) -> None:
    assert kit.options(ranks=2, cluster=three).record(sizes).results == [(0, 2), (1, 2)]
    assert kit.options(ranks=1, cluster=three).record(sizes).results == [(0, 1)]
    assert three.record(sizes).results == [(0, 3), (1, 3), (2, 3)]


def test_futures_and_asynchronous_operations_end(three: LiveRunner) -> None:
    recording = three.record(asynchronous)
    assert recording.results == [9.0] * 3
    assert all(op.ended is not None for op in recording.trace.ranks[0].operations)


def names_what_it_does(fails: bool = False) -> None:
    with record_function("a step"):
        with record_function("PP:0F0"):
            dist.barrier()
        if fails:
            raise ValueError("in the middle")
        dist.barrier()


def test_what_code_names_is_in_the_trace(three: LiveRunner) -> None:
    """Also after a run that failed within a name."""
    with pytest.raises(RankError):
        three.record(names_what_it_does, fails=True)
    for rank in three.record(names_what_it_does).trace.ranks:
        step, action = rank.stretches
        assert [step.name, action.name] == ["a step", "PP:0F0"]
        first, second = rank.operations
        assert first.ended is not None and second.ended is not None
        assert step.start <= action.start <= first.issued <= first.ended <= action.end <= second.issued
        assert second.ended <= step.end
    assert not any(rank.stretches for rank in three.record(speak).trace.ranks)
