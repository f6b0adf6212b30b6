"""Simulated worlds: the closed forms, the traffic of the real algorithms, and traces that views can draw."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kit.cost import network, predicted_trace, worlds
from kit.cost.schedules import SCHEDULES
from kit.cost.worlds import World, simulated
from kit.plot.render_svg import svg
from kit.plot.timeline import timeline_figure
from tests.topics.collectives import traffic

A, B = 1e-5, 1e9
CLOSED: dict[str, Callable[[int, float, float, float], float]] = {
    "ring_all_reduce": network.ring_all_reduce,
    "ring_reduce_scatter": network.ring_reduce_scatter,
    "ring_all_gather": network.ring_all_gather,
    "tree_broadcast": network.tree_broadcast,
    "tree_reduce": network.tree_reduce,
    "tree_all_reduce": network.tree_all_reduce,
    "halving_doubling_all_reduce": network.halving_doubling_all_reduce,
    "all_to_all": network.pairwise_all_to_all,
    "all_reduce_via_root": network.via_root_all_reduce,
    "broadcast_from_root": lambda n, s, a, b: (n - 1) * (a + s / b),
}


def run(name: str, n: int, nbytes: int, **more: object) -> World:
    return simulated(name, n, nbytes, latency=A, bandwidth=B, **more)  # type: ignore[arg-type]


def test_every_schedule_has_a_closed_form_to_be_held_against() -> None:
    assert CLOSED.keys() == SCHEDULES.keys()


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 16, 33, 256])
def test_on_equal_links_it_is_the_closed_form(name: str, n: int) -> None:
    nbytes = 4 * n * 256  # n divides it, and so does the largest power of two below n where that matters
    assert run(name, n, nbytes).seconds == pytest.approx(CLOSED[name](n, nbytes, A, B), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 8, 13])
@pytest.mark.parametrize("count", [0, 5, 24, 1001])
@pytest.mark.parametrize(
    "name", ["ring_all_reduce", "ring_reduce_scatter", "tree_all_reduce", "halving_doubling_all_reduce"]
)
def test_every_rank_sends_what_the_real_algorithm_sends(name: str, n: int, count: int) -> None:
    world = run(name, n, 4 * count)
    loads = [getattr(traffic, name)(n, rank, count) for rank in range(n)]
    assert world.bytes_sent.tolist() == [load.bytes_sent for load in loads]
    assert world.bytes_received.tolist() == [load.bytes_received for load in loads]
    assert world.messages == sum(load.sent for load in loads)


@pytest.mark.parametrize("n", [2, 3, 5, 8])
@pytest.mark.parametrize("count", [5, 24])
def test_traffic_of_those_that_move_rows(n: int, count: int) -> None:
    rows = [count // n + (i < count % n) for i in range(n)]
    for rank in range(n):
        gather = traffic.ring_all_gather(n, rank, rows)
        assert run("ring_all_gather", n, 4 * count).bytes_sent[rank] == gather.bytes_sent
        swap = traffic.all_to_all(n, rank, rows, [rows[rank]] * n)
        world = run("all_to_all", n, 4 * count)
        assert (world.bytes_sent[rank], world.bytes_received[rank]) == (swap.bytes_sent, swap.bytes_received)
        assert run("tree_broadcast", n, 4 * count).bytes_sent[rank] == traffic.tree_broadcast(n, rank, count).bytes_sent


def test_a_ring_of_1024_ranks_two_million_messages() -> None:
    nbytes = 4 * 1024 * 1000
    world = run("ring_all_reduce", 1024, nbytes)
    assert world.messages == 2 * 1023 * 1024
    assert world.seconds == pytest.approx(network.ring_all_reduce(1024, nbytes, A, B), rel=1e-9)
    part = world.trace(first=3)
    assert [len(rank.operations) for rank in part.ranks] == [4 * 1023] * 3
    assert "ranks 0 to 2 of 1,024" in part.meta.notes[-1]
    with pytest.raises(ValueError, match=r"too large .*trace\(first=\d+\)"):
        world.trace()


def test_the_work_grows_with_the_messages_alone() -> None:
    """Counted, not timed: every message is in exactly one round, and a tree's rounds hold its messages only."""
    rounds = list(SCHEDULES["tree_all_reduce"](1024, 1))
    assert sum(len(one.source) for one in rounds) == 2 * 1023 and len(rounds) == 20


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("n", [2, 3, 4, 6])
def test_the_trace_is_whole_and_the_general_simulator_agrees(name: str, n: int) -> None:
    world = run(name, n, 4 * n * 256)  # whole microseconds: nothing is rounded
    trace = world.trace()
    assert trace.meta.mode == "predicted" and len(trace.ranks) == n and trace.unmatched() == ()
    assert len(trace.messages()) == world.messages
    assert [trace.bytes_sent(rank).wire for rank in range(n)] == world.bytes_sent.tolist()
    again = predicted_trace(trace, latency=A, bandwidth=B, compute=0)
    for one, other in zip(trace.ranks, again.ranks, strict=True):
        for mine, theirs in zip(one.operations, other.operations, strict=True):
            assert (mine.match, mine.began, mine.ended) == (theirs.match, theirs.began, theirs.ended)
    assert max(span.end for span in trace.spans()) == pytest.approx(world.seconds)
    assert "<svg" in svg(timeline_figure(trace))


def test_slow_links_between_nodes_set_the_pace_of_a_ring() -> None:
    inside, slow = run("ring_all_reduce", 8, 8 * 4000), (1e-4, 1e8)
    nodes = run("ring_all_reduce", 8, 8 * 4000, node=4, between=slow)
    assert nodes.seconds == pytest.approx(network.ring_all_reduce(8, 8 * 4000, *slow))
    assert nodes.seconds > 5 * inside.seconds
    assert run("ring_all_reduce", 8, 8 * 4000, node=8, between=slow).seconds == inside.seconds
    assert any("nodes of 4 ranks" in note for note in nodes.trace().meta.notes)


def test_a_late_rank_keeps_the_others_waiting() -> None:
    starts = [0.0, 0.0, 0.002, 0.0]
    world = run("ring_all_reduce", 4, 1600, starts=starts)
    on_time = network.ring_all_reduce(4, 1600, A, B)
    assert world.finish.min() > 0.002 - on_time and world.seconds == pytest.approx(0.002 + on_time, rel=1e-9)
    trace = world.trace()
    assert trace.waiting_time(3) > 0.0019 > trace.waiting_time(2)


def test_a_world_too_large_to_keep_still_knows_its_totals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "KEPT", 10)
    world = run("ring_all_reduce", 4, 1600)
    assert world.messages == 24 and world.bytes_sent.tolist() == [2400] * 4
    assert np.allclose(world.finish, network.ring_all_reduce(4, 1600, A, B))
    with pytest.raises(ValueError, match="too many to keep"):
        world.trace()
    assert "24 messages in 6 rounds" in str(world)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"collective": "ring"}, "no schedule is known for 'ring'"),
        ({"ranks": 0}, "1 or more"),
        ({"ranks": 2.0}, "whole number"),
        ({"nbytes": 6}, "elements of 4 bytes"),
        ({"nbytes": -4}, "elements of 4 bytes"),
        ({"itemsize": 0}, "elements of 0 bytes"),
        ({"latency": -1}, "latency >= 0"),
        ({"bandwidth": 0}, "bandwidth > 0"),
        ({"node": 2}, "give both"),
        ({"node": 0, "between": (1e-3, 1e9)}, "at least one rank"),
        ({"node": 2, "between": (1e-3, 0)}, "bandwidth > 0"),
        ({"starts": [0.0]}, "4 times in seconds"),
        ({"starts": [0.0, -1.0, 0.0, 0.0]}, "0 or more"),
    ],
)
def test_nonsense_says_what_to_do(change: dict, words: str) -> None:
    asked = {"collective": "ring_all_reduce", "ranks": 4, "nbytes": 1600, "latency": A, "bandwidth": B} | change
    with pytest.raises(ValueError, match=words):
        simulated(**asked)


@pytest.mark.parametrize("first", [0, 5, -1])
def test_a_trace_shows_ranks_there_are(first: int) -> None:
    with pytest.raises(ValueError, match="show the first 1 to 4"):
        run("all_to_all", 4, 1600).trace(first=first)
