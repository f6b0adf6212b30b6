"""Questions about a run, answered on runs whose answers are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kit.trace.facts import Region
from kit.trace.traffic import Traffic
from tests.traces import example
from tests.traces.builder import TraceBuilder, tensor


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8])
def test_the_ring_sends_exactly_what_theory_says(n: int) -> None:
    trace = example.ring(n)
    size = 2 * n * 4
    for rank in range(n):
        assert trace.bytes_sent(rank) == trace.bytes_received(rank)
        assert trace.bytes_sent(rank).wire == 2 * (n - 1) * size // n
        assert trace.bytes_sent(rank).algorithmic == 0
    assert len(trace.messages()) == 2 * (n - 1) * n
    assert trace.bytes_sent().wire == sum(message.nbytes for message in trace.messages())
    assert trace.collectives() == () == trace.unmatched()


def test_the_ring_computes_the_sum() -> None:
    last = example.ring(4)
    for rank in last.ranks:
        (x,) = (fact for fact in rank.stops[-1].frames[-1].tensors if fact.name == "x")
        assert x.values is not None and np.array_equal(x.values, np.full(8, 1111.0, np.float32))


def test_via_root_mixes_messages_and_a_collective_without_adding_them_up() -> None:
    trace, size = example.via_root(), 1_000_000
    assert trace.bytes_sent(0) == Traffic(size, size, 0)
    assert trace.bytes_received(0) == Traffic(4 * size, 0.0, 3 * size)
    assert trace.bytes_sent(3) == Traffic(2 * size, 0.0, size)
    assert [message.source for message in trace.messages()] == [1, 2, 3]
    assert len(trace.messages(2)) == 1 and len(trace.messages(0)) == 3
    assert len(trace.collectives()) == 4 and trace.collectives(1)[0].name == "broadcast"


def test_what_never_moved_counts_nothing_but_is_told() -> None:
    trace = example.held_ring()
    assert trace.bytes_sent() == Traffic(16, 0.0, 16)
    assert trace.bytes_sent(2).wire == 0
    assert [(m.source, m.received is None) for m in trace.messages()] == [(0, False), (1, False), (2, True)]
    assert [(op.rank, op.name) for op in trace.unmatched()] == [(0, "recv"), (2, "send")]


def test_in_flight_without_times_still_counts_when_both_are_there() -> None:
    trace = example.via_root()
    bare = tuple(
        replace(rank, operations=tuple(replace(op, began=None, ended=None, waits=()) for op in rank.operations))
        for rank in trace.ranks
    )
    assert replace(trace, ranks=bare).bytes_sent() == trace.bytes_sent()
    failed = tuple(
        replace(rank, operations=tuple(replace(op, error="size") for op in rank.operations)) for rank in bare
    )
    assert replace(trace, ranks=failed).bytes_sent() == Traffic(0, 0.0, 0)


def test_peak_memory_looks_at_every_stop() -> None:
    drawing = TraceBuilder("f", ["x = torch.ones(n)"], 1, "step")
    drawing.stop(0, 1, [tensor("x", np.zeros(1000), 1)])
    drawing.stop(0, 1, [])
    drawing.position("start")
    assert drawing.trace().peak_memory(0) == 60_000_000 + 8000
    assert replace(drawing.trace(), ranks=(replace(drawing.trace().ranks[0], stops=()),)).peak_memory(0) == 0


def test_hidden_and_exposed_communication() -> None:
    trace = example.overlap()
    assert trace.exposed_communication(0) == pytest.approx(200e-6)
    assert trace.waiting_time(0) == 0
    hidden = [span for span in trace.spans() if span.rank == 0 and span.lane == 1]
    assert [(span.start, span.end) for span in hidden] == [(100e-6, 300e-6)]


def test_waiting_is_for_a_late_partner_only() -> None:
    trace = example.via_root()
    assert trace.waiting_time(3) == pytest.approx((460 + 80) * 1e-6)
    assert trace.exposed_communication(3) == pytest.approx((250 + 500) * 1e-6)


def test_an_open_wait_counts_in_a_recorded_run_only() -> None:
    stepped = example.deadlock()
    assert stepped.waiting_time(0) == 0
    drawing = TraceBuilder("f", ["dist.send(x, 1)"], 2, "record")
    drawing.run(0, 10)
    drawing.run(1, 500)
    drawing.at[0] = 10_000
    drawing.issue(0, "send", "0/p/0>1/0/0", 1, [Region("in", 1, 0, (1,), "float32")], peer=1)
    drawing.waits(0, 1, "send to rank 1", [1])
    drawing.finish(1)
    drawing.position("finish")
    drawing.look(2_000_000_000)
    assert drawing.trace().waiting_time(0) == pytest.approx(2.00049)


@pytest.mark.parametrize("ask", ["bytes_sent", "messages", "collectives", "peak_memory", "waiting_time"])
def test_a_rank_that_is_not_there_is_refused(ask: str) -> None:
    with pytest.raises(ValueError, match="no rank 4: choose one of 0 to 3"):
        getattr(example.ring(), ask)(4)
