"""A trace as it was: nothing of what came later may show."""

from __future__ import annotations

import pytest

from kit.trace.facts import Region
from tests.traces import example
from tests.traces.builder import TraceBuilder


def test_the_last_position_is_the_trace_itself() -> None:
    trace = example.ring()
    assert trace.until(-1) is trace
    assert trace.until(len(trace.positions) - 1) is trace


def test_every_earlier_position_shows_no_later_time() -> None:
    trace = example.ring(3)
    for index in range(len(trace.positions)):
        then = trace.until(index)
        seen = max(state.now or 0 for state in then.positions[-1].states)
        assert len(then.positions) == index + 1
        for rank in then.ranks:
            assert all(stop.time <= seen for stop in rank.stops)
            assert len(rank.stops) == then.positions[-1].states[rank.rank].stop + 1
            assert all((op.ended or 0) <= seen and (op.began or 0) <= seen for op in rank.operations)
            assert all(start < end <= seen for start, end in rank.active)
        assert then.bytes_sent().wire <= trace.bytes_sent().wire
        ends = [max((span.end for span in t.spans()), default=0) for t in (then, trace)]
        assert ends[0] <= ends[1]


def test_what_was_open_then_is_open_again() -> None:
    trace = example.held_ring()
    before = trace.until(-2)
    assert before.positions[-1].states[1].place is not None and before.positions[-1].states[1].place.line == 9
    assert len(before.unmatched()) == 2
    assert before.until(0).messages() == ()


def test_an_operation_that_began_later_has_not_begun() -> None:
    drawing = TraceBuilder("f", ["..."], 2, "step")
    x = [Region("inout", 1, 0, (4,), "float32")]
    first = drawing.issue(0, "all_reduce", "0/c/0", 1, x)
    drawing.position("step")
    drawing.issue(1, "all_reduce", "0/c/0", 1, x)
    drawing.move("0/c/0", 50)
    drawing.position("step")
    drawing.wait(first)
    drawing.position("step")
    trace = drawing.trace()
    assert [(op.began, op.ended) for op in trace.until(0).ranks[0].operations] == [(None, None)]
    assert trace.until(0).ranks[1].operations == ()
    assert trace.until(0).bytes_sent().payload == 0
    began = trace.ranks[0].operations[0].began
    assert [(op.began, op.ended) for op in trace.until(1).ranks[0].operations] == [(began, None)]


def test_a_position_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="counted from 0"):
        example.deadlock().until(4)
    recorded = example.ring()
    with pytest.raises(ValueError, match="no positions"):
        type(recorded)(recorded.meta, recorded.ranks).until(0)
