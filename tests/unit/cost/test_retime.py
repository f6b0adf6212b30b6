"""Prediction: re-timing a run's messages must give the formula of the algorithm that the messages are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.cost import network, predicted_trace
from kit.trace.facts import Operation, Region
from kit.trace.trace import Trace
from tests.traces import example
from tests.traces.builder import TraceBuilder

A, B = 1e-6, 1e9


def region(elements: int, role: Any = "inout") -> list[Region]:
    return [Region(role, 1, 0, (elements,), "float32")]


def length(trace: Trace) -> float:
    return max((span.end for span in trace.spans()), default=0.0)


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_the_ring_s_messages_take_the_ring_s_formula(n: int) -> None:
    predicted = predicted_trace(example.ring(n), latency=A, bandwidth=B, compute=0)
    assert length(predicted) == pytest.approx(network.ring_all_reduce(n, 2 * n * 4, A, B))
    for rank in range(n):
        assert predicted.exposed_communication(rank) == pytest.approx(length(predicted))
        assert predicted.waiting_time(rank) == 0


def test_via_root_waits_its_turn_at_the_root() -> None:
    predicted = predicted_trace(example.via_root(), latency=A, bandwidth=B, compute=0)
    whole = 1_000_000
    expected = 3 * network.message(whole, A, B) + network.tree_broadcast(4, whole, A, B)
    assert length(predicted) == pytest.approx(expected)
    assert predicted.waiting_time(3) == pytest.approx(2 * network.message(whole, A, B))
    chained = predicted_trace(
        example.via_root(), latency=A, bandwidth=B, compute=0, algorithms={"broadcast": network.via_root_all_reduce}
    )
    assert length(chained) == pytest.approx(9 * network.message(whole, A, B))


def test_the_result_is_a_trace_of_the_same_operations() -> None:
    measured = example.via_root()
    predicted = predicted_trace(measured, latency=A, bandwidth=B)
    assert predicted.meta.mode == "predicted" and "latency 1 µs, bandwidth 1 GB/s" in predicted.meta.notes[-1]
    assert predicted.bytes_sent() == measured.bytes_sent()
    assert predicted.mismatches() == ()
    assert [m.match for m in predicted.messages()] == [m.match for m in measured.messages()]
    for before, after in zip(measured.ranks, predicted.ranks, strict=True):
        assert [op.index for op in before.operations] == [op.index for op in after.operations]
        assert after.stops == ()


def test_computing_counts_by_its_factor() -> None:
    trace = example.overlap()
    for factor in (0.0, 1.0, 2.0):
        spans = predicted_trace(trace, latency=0, bandwidth=1e12, compute=factor).spans()
        computed = sum(span.end - span.start for span in spans if span.rank == 0 and span.kind == "compute")
        assert computed == pytest.approx(350e-6 * factor)


def test_overlap_hides_what_computing_covers() -> None:
    """4000 bytes on 2 ranks take 2 a + S b: with 50 µs latency 104 µs, behind 200 µs of computing."""
    hidden = predicted_trace(example.overlap(), latency=50e-6, bandwidth=B)
    assert length(hidden) == pytest.approx(350e-6)
    assert hidden.exposed_communication(0) == 0
    slow = predicted_trace(example.overlap(), latency=150e-6, bandwidth=B)
    assert slow.exposed_communication(0) == pytest.approx(104e-6)
    assert length(slow) == pytest.approx(454e-6)


def test_a_rank_sends_one_message_at_a_time() -> None:
    drawing = TraceBuilder("f", ["..."], 4, "record")
    sends = [drawing.issue(0, "send", f"0/p/0>{peer}/0/0", 1, region(250, "in"), peer=peer) for peer in (1, 2, 3)]
    receives = [drawing.issue(peer, "recv", f"0/p/0>{peer}/0/0", 1, region(250, "out"), peer=0) for peer in (1, 2, 3)]
    for peer in (1, 2, 3):
        drawing.move(f"0/p/0>{peer}/0/0", 5)
    for op in (*sends, *receives):
        drawing.wait(op)
    predicted = predicted_trace(drawing.trace(), latency=A, bandwidth=B)
    ends = [op.ended for op in predicted.ranks[0].operations]
    assert ends == [2000, 4000, 6000]
    assert length(predicted) == pytest.approx(6e-6)


def test_both_directions_at_once() -> None:
    drawing = TraceBuilder("f", ["..."], 2, "record")
    for rank in range(2):
        drawing.issue(rank, "send", f"0/p/{rank}>{1 - rank}/0/0", 1, region(250, "in"), peer=1 - rank)
        drawing.issue(rank, "recv", f"0/p/{1 - rank}>{rank}/0/0", 1, region(250, "out"), peer=1 - rank)
    for rank in range(2):
        drawing.move(f"0/p/{rank}>{1 - rank}/0/0", 5)
    for rank in range(2):
        for op in drawing.operations[rank]:
            drawing.wait(op)
    assert length(predicted_trace(drawing.trace(), latency=A, bandwidth=B)) == pytest.approx(2e-6)


def test_collectives_of_one_rank_follow_each_other() -> None:
    drawing = TraceBuilder("f", ["..."], 2, "record")
    for bucket in range(3):
        for rank in range(2):
            drawing.issue(rank, "all_reduce", f"0/c/{bucket}", 1, region(250), reduce="SUM")
        drawing.move(f"0/c/{bucket}", 5)
    for rank in range(2):
        for op in drawing.operations[rank]:
            drawing.wait(op)
    one = network.ring_all_reduce(2, 1000, A, B)
    assert length(predicted_trace(drawing.trace(), latency=A, bandwidth=B)) == pytest.approx(3 * one)


def test_the_whole_buffer_counts_where_a_rank_hands_in_a_piece() -> None:
    drawing = TraceBuilder("f", ["..."], 4, "record")
    for rank in range(4):
        drawing.issue(rank, "all_gather", "0/c/0", 1, [*region(250, "in"), *region(1000, "out")])
    drawing.move("0/c/0", 5)
    for rank in range(4):
        drawing.wait(drawing.operations[rank][0])
    predicted = predicted_trace(drawing.trace(), latency=A, bandwidth=B)
    assert length(predicted) == pytest.approx(network.ring_all_gather(4, 4000, A, B))


def test_a_stepped_run_is_predicted_without_the_person() -> None:
    predicted = predicted_trace(example.ring(), latency=A, bandwidth=B)
    assert length(predicted) < 2e-3


def test_what_never_met_stays_open() -> None:
    predicted = predicted_trace(example.deadlock(), latency=A, bandwidth=B)
    assert all(op.began is None and op.ended is None for rank in predicted.ranks for op in rank.operations)
    assert predicted.bytes_sent().wire == 0


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 400)), max_size=15),
    st.floats(0, 1e-3),
    st.floats(1e6, 1e12),
)
def test_no_operation_begins_before_all_have_come_and_no_port_is_used_twice(
    program: list[tuple[int, int, int]], latency: float, bandwidth: float
) -> None:
    drawing = TraceBuilder("f", ["..."], 4, "record")
    for number, (source, target, amount) in enumerate(program):
        if source == target:
            drawing.run(source, amount)
            continue
        match = f"0/p/{number}"
        send = drawing.issue(source, "send", match, 1, region(amount, "in"), peer=target)
        receive = drawing.issue(target, "recv", match, 1, region(amount, "out"), peer=source)
        drawing.move(match, 10)
        if amount % 2:
            drawing.wait(send)
        drawing.wait(receive)
    trace = drawing.trace()
    predicted = predicted_trace(trace, latency=latency, bandwidth=bandwidth)
    parts: dict[str, list[Operation]] = {}
    ports: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for rank in predicted.ranks:
        for op in rank.operations:
            assert op.began is not None and op.ended is not None
            parts.setdefault(op.match, []).append(op)
            ports.setdefault((op.rank, op.name), []).append((op.began, op.ended))
    for ops in parts.values():
        assert ops[0].began == ops[1].began >= max(op.issued for op in ops)  # type: ignore[operator]
        seconds = network.message(4 * ops[0].regions[0].shape[0], latency, bandwidth)
        assert ops[0].ended - ops[0].began == round(1e9 * seconds)  # type: ignore[operator]
    for busy in ports.values():
        busy.sort()
        assert all(first[1] <= second[0] for first, second in zip(busy, busy[1:], strict=False))


def test_impossible_requests_are_refused() -> None:
    trace = example.overlap()
    with pytest.raises(ValueError, match="give a latency"):
        predicted_trace(trace, latency=A, bandwidth=0)
    with pytest.raises(ValueError, match="compute is a factor"):
        predicted_trace(trace, latency=A, bandwidth=B, compute=-1)
    odd = tuple(
        replace(rank, operations=tuple(replace(op, name="all_shuffle") for op in rank.operations))
        for rank in trace.ranks
    )
    with pytest.raises(ValueError, match="no cost is known for 'all_shuffle'"):
        predicted_trace(replace(trace, ranks=odd), latency=A, bandwidth=B)
    named = predicted_trace(
        replace(trace, ranks=odd), latency=A, bandwidth=B, algorithms={"all_shuffle": network.ring_all_gather}
    )
    assert length(named) > 0
