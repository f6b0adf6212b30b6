"""A recorded trace that comes with Lockstep, the ring whose last rank is held: facts of ranks, read without any."""

from __future__ import annotations

import pytest

from kit.cost import network, predicted_trace
from kit.resources import assets
from kit.trace.trace import Trace


@pytest.fixture(scope="module")
def ring() -> Trace:
    return Trace.load(assets() / "traces" / "01a_collectives" / "step-hold-run.trace")


def test_it_says_what_theory_says(ring: Trace) -> None:
    assert [ring.bytes_sent(rank).wire for rank in range(4)] == [24] * 4  # 6 messages of one element
    assert len(ring.messages()) == 24 and ring.mismatches() == () == ring.unmatched()
    assert all(state.phase == "finished" for state in ring.positions[-1])
    for rank in range(4):
        assert ring.peak_memory(rank) > 0


def test_the_held_rank_and_those_who_wait_for_it(ring: Trace) -> None:
    (held,) = [index for index, position in enumerate(ring.positions) if position[3].held]
    position = ring.positions[held]
    assert str(position[0]).startswith("rank 0 waits in recv from rank 3 · line ")
    assert str(position[2]).startswith("rank 2 waits in send to rank 3 · line ")
    assert position.advice(3) == "let it go to free ranks 0 and 2"
    last = {span.rank: span for span in ring.until(held).spans() if span.lane == 0}
    assert [(last[rank].kind, last[rank].open) for rank in (0, 2, 3)] == [
        ("wait", True),
        ("wait", True),
        ("held", True),
    ]


def test_its_messages_take_the_ring_s_time_when_predicted(ring: Trace) -> None:
    predicted = predicted_trace(ring, latency=1e-5, bandwidth=1e9, compute=0)
    assert max(span.end for span in predicted.spans()) == pytest.approx(network.ring_all_reduce(4, 16, 1e-5, 1e9))


def test_nothing_of_the_machine_it_came_from_is_in_it(ring: Trace) -> None:
    named = {"kit/topics/collectives/reference/ring.py"}
    assert {source.file for source in ring.sources} == named
    places = {frame.place.file for rank in ring.ranks for stop in rank.stops for frame in stop.frames}
    places |= {op.place.file for rank in ring.ranks for op in rank.operations if op.place}
    assert places <= named
