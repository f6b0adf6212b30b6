"""A short sweep on real ranks: every collective is timed, nothing of it is recorded, a Ctrl-C leaves whole ranks."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist

from kit.probe.timing import calls_of, prepared, time_collective
from kit.run import bandwidth
from kit.run.live import LiveRunner
from kit.run.runner import SweepPlan


def one_call(operation: str, count: int) -> None:
    prepared(operation, count)()


def timed(operation: str, nbytes: int) -> list[tuple[float, float]]:
    return time_collective(operation, nbytes, 3, 1)


def still_sums() -> float:
    x = torch.ones(4)
    dist.all_reduce(x)
    return float(x[0])


def test_every_collective_over_two_sizes(ranks: LiveRunner) -> None:
    if ranks.size == 1:
        with pytest.raises(ValueError, match="at least 2 ranks"):
            ranks.sweep(SweepPlan())
        return
    sweep = ranks.sweep(SweepPlan(sizes=[1200, 120_000], repeats=3, warm_up=1))
    assert sweep.operations == bandwidth.OPERATIONS
    whole = 4 * ranks.size  # bytes: every rank holds as many elements
    assert [row.nbytes for row in sweep.of("reduce_scatter")] == [-(-s // whole) * whole for s in (1200, 120_000)]
    for row in sweep.rows:
        assert len(row.times) == 3 and min(row.times) > 0 and max(row.times) < 60
        assert len(row.by_rank) == (2 if row.operation == "send" else ranks.size)
        assert row.busbw > 0
    assert sweep.fit("send").error < 100
    assert (sweep.backend, sweep.ranks) == ("gloo", ranks.size)
    assert ranks.record(still_sums).results == [ranks.size] * ranks.size


def test_what_is_timed_is_not_recorded(three: LiveRunner) -> None:
    recording = three.record(timed, "all_reduce", 1200)
    assert all(len(rank) == 3 and all(end > begin for begin, end in rank) for rank in recording.results)
    for rank in recording.trace.ranks:
        assert [operation.name for operation in rank.operations] == ["all_reduce"]  # the warm-up alone
    assert [op.name for op in three.record(still_sums).trace.ranks[0].operations] == ["all_reduce"]


def test_on_a_device_calls_are_timed_together_by_its_events(three_on_nccl: LiveRunner) -> None:
    sweep = three_on_nccl.sweep(SweepPlan(("send", "all_reduce"), sizes=[6_000_000], repeats=2, warm_up=0))
    assert "events of the device" in sweep.notes[0]
    for row in sweep.rows:
        assert len(row.times) == 2 and all(0 < seconds < 60 for seconds in (*row.times, *row.by_rank))
    calls = three_on_nccl.record(timed, "all_reduce", 6_000_000).results
    assert {began for rank in calls for began, _ in rank} == {0.0}
    assert (calls_of(12), calls_of(1_000_000), calls_of(1_000_000_000)) == (50, 10, 5)


@pytest.mark.parametrize("operation", bandwidth.OPERATIONS)
def test_a_collective_is_recorded_under_its_name_with_its_whole_buffer(three: LiveRunner, operation: str) -> None:
    trace = three.record(one_call, operation, 30).trace
    names = {op.name for rank in trace.ranks for op in rank.operations}
    assert names == ({"send", "recv"} if operation == "send" else {operation})
    whole = max(op.payload for rank in trace.ranks for op in rank.operations)
    assert whole == 4 * 30


def test_a_subset_of_ranks(three: LiveRunner) -> None:
    sweep = three.sweep(SweepPlan("all_reduce", 1200, repeats=2, warm_up=0, ranks=2))
    assert len(sweep.rows[0].by_rank) == sweep.rows[0].ranks == 2


def test_a_throttled_link_is_felt_and_said(three: LiveRunner) -> None:
    with three.link(latency=0.05, bandwidth=1e9):
        slow = three.sweep(SweepPlan("send", 1200, repeats=1, warm_up=0))
    assert slow.rows[0].seconds > 0.045
    assert any("50" in note and "ms" in note for note in slow.notes[1:])
    assert len(three.sweep(SweepPlan("send", 1200, repeats=1, warm_up=0)).notes) < len(slow.notes)


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_an_interrupt_in_the_middle_of_a_measurement(three: LiveRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = bandwidth._measure

    def then_ctrl_c(cluster: LiveRunner, name: str, *arguments: Any) -> Any:
        if name == "broadcast":
            threading.Timer(0.5, _ctrl_c).start()
            return measured(cluster, name, 3, 1200, 10_000_000, 0)  # for ever
        return measured(cluster, name, *arguments)

    monkeypatch.setattr(bandwidth, "_measure", then_ctrl_c)
    sweep = three.sweep(SweepPlan(["send", "broadcast", "reduce"], 1200, repeats=2, warm_up=0))
    assert [row.operation for row in sweep.rows] == ["send"]
    assert sweep.notes[0].startswith("Interrupted: 1 of 3")
    assert three.record(still_sums).results == [3.0] * 3


def _ctrl_c() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
