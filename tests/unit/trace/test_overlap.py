"""What computing hides of communication: exact numbers, on traces written down by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kit.trace.facts import Pass, Region, Stretch
from kit.trace.overlap import RankOverlap
from kit.trace.trace import Trace
from tests.traces import example
from tests.traces.builder import TraceBuilder

X = [Region("inout", 1, 0, (250,), "float32")]
LINK = "links throttled to 1 ms and 0.05 GB/s"


def backward(buckets: int, compute: int, send: int, asynchronous: bool = True, late: int = 0) -> Trace:
    """Two ranks: `buckets` times some µs of computing and an all-reduce of `send` µs, one after the other on the link.

    Asynchronous ones are waited for at the end. late: µs by which rank 1 begins later.
    """
    drawing = TraceBuilder("train", ["..."], 2, "record")
    drawing.meta = replace(drawing.meta, notes=(LINK,))
    pending, free = [], 0
    drawing.at[1] = late * 1000
    for number in range(buckets):
        for rank in range(2):
            drawing.run(rank, compute)
        parts = [drawing.issue(rank, "all_reduce", f"0/c/{number}", 1, X) for rank in range(2)]
        free = max(free, *(part.issued for part in parts)) + send * 1000
        for part in parts:
            drawing.operations[part.rank][part.index] = replace(part, ended=free)
        pending += parts
        if not asynchronous:
            for part in parts:
                drawing.wait(part)
    for part in pending if asynchronous else []:
        drawing.wait(part)
    return drawing.trace()


def microseconds(intervals: tuple[tuple[float, float], ...]) -> list[tuple[int, int]]:
    return [(round(a * 1e6), round(b * 1e6)) for a, b in intervals]


def numbers(rank: RankOverlap) -> tuple[int, int, int]:
    """(communication, hidden, exposed) in µs."""
    return round(rank.communication * 1e6), round(rank.hidden * 1e6), round(rank.exposed * 1e6)


def test_all_but_the_last_bucket_hides_behind_longer_computing() -> None:
    seen = backward(4, compute=100, send=60).overlap()
    assert seen.link == LINK
    for rank in seen.ranks:
        assert numbers(rank) == (240, 180, 60)
        assert rank.exposed_share == pytest.approx(0.25)
        assert microseconds(rank.exposed_parts) == [(400, 460)]
        assert microseconds(rank.computing) == [(0, 400)]
        assert rank.waiting == () and round(rank.ends * 1e6) == 460


def test_a_slower_link_queues_and_shows() -> None:
    """Buckets at 100, 200, 300, 400 take 150 each: the link is busy from 100 to 700."""
    (rank, _) = backward(4, compute=100, send=150).overlap().ranks
    assert numbers(rank) == (600, 300, 300)
    assert [(round(f.issued * 1e6), round(f.begins * 1e6), round(f.ends * 1e6)) for f in rank.flights] == [
        (100, 100, 250), (200, 250, 400), (300, 400, 550), (400, 550, 700),
    ]  # fmt: skip
    assert [microseconds(f.parts) for f in rank.flights] == [[], [], [(400, 550)], [(550, 700)]]


def test_one_bucket_and_blocking_calls_hide_nothing() -> None:
    (rank, _) = backward(1, compute=400, send=240).overlap().ranks
    assert numbers(rank) == (240, 0, 240) and rank.exposed_share == 1.0
    (rank, _) = backward(4, compute=100, send=60, asynchronous=False).overlap().ranks
    assert numbers(rank) == (240, 0, 240)
    assert microseconds(rank.exposed_parts) == [(100, 160), (260, 320), (420, 480), (580, 640)]


def test_waiting_for_a_late_rank_is_not_communication() -> None:
    early, late = backward(1, compute=100, send=60, late=500).overlap().ranks
    assert numbers(early) == numbers(late) == (60, 0, 60)
    assert microseconds(early.waiting) == [(100, 600)] and late.waiting == ()
    assert microseconds(early.exposed_parts) == [(600, 660)]


def test_hidden_and_exposed_make_up_all_of_it() -> None:
    for buckets, compute, send in ((1, 10, 10), (3, 50, 20), (5, 20, 50), (7, 33, 31)):
        for rank in backward(buckets, compute, send).overlap().ranks:
            assert rank.hidden + rank.exposed == pytest.approx(rank.communication)
            assert rank.communication == pytest.approx(buckets * send * 1e-6 if send > compute else rank.communication)
            assert rank.hidden >= 0


def with_steps(trace: Trace, passes: tuple[Pass, ...]) -> Trace:
    return replace(trace, ranks=tuple(replace(rank, passes=passes) for rank in trace.ranks))


def test_one_step_of_several() -> None:
    trace = backward(4, compute=100, send=60, asynchronous=False)  # a step of two operations, twice
    passes = tuple(
        Pass(name, start * 1000, end * 1000)
        for name, start, end in (
            ("forward", 0, 50), ("backward", 60, 320), ("step", 320, 321),
            ("forward", 330, 380), ("backward", 380, 640), ("step", 640, 641),
        )
    )  # fmt: skip
    trace = with_steps(trace, passes)
    for step in (0, 1, -1):
        (rank, _) = trace.overlap(step).ranks
        assert numbers(rank) == (120, 0, 120) and len(rank.flights) == 2
        assert [name for name, _, _ in rank.passes] == ["forward", "backward", "step"]
    (rank, _) = trace.overlap().ranks
    assert rank.starts == 0 and rank.ends == pytest.approx(311e-6), "its own start is the zero of the axis"
    assert trace.overlap() == trace.overlap(1)
    with pytest.raises(ValueError, match="no training step 2 on rank 0"):
        trace.overlap(2)


def test_steps_that_code_has_named() -> None:
    """As torch.profiler names them; where passes were not watched."""
    whole = backward(4, compute=100, send=60)
    begins = whole.ranks[0].active[0][0]
    named = tuple(
        Stretch(name, begins + 1000 * start, begins + 1000 * end)
        for name, start, end in (("ProfilerStep#0", 0, 190), ("other", 0, 400), ("ProfilerStep#1", 190, 460))
    )
    trace = replace(whole, ranks=tuple(replace(rank, stretches=named) for rank in whole.ranks))
    (first, _), (last, _) = trace.overlap(0).ranks, trace.overlap().ranks
    assert microseconds(first.computing) == [(0, 190)] and len(first.flights) == 1
    assert microseconds(last.computing) == [(0, 210)] and numbers(last)[2] == 60
    with pytest.raises(ValueError, match="there is no training step 2 on rank 0: the run has 2, counted from 0"):
        trace.overlap(2)


def test_the_rank_with_most_exposed() -> None:
    trace = backward(2, compute=100, send=60)
    slow = trace.ranks[1].operations[1]
    longer = replace(slow, ended=(slow.ended or 0) + 40_000, waits=((200_000, (slow.ended or 0) + 40_000),))
    ranks = (trace.ranks[0], replace(trace.ranks[1], operations=(trace.ranks[1].operations[0], longer)))
    seen = replace(trace, ranks=ranks).overlap()
    assert seen.worst.rank == 1 and seen.seconds == seen.ranks[1].ends


def test_a_stepped_run_is_as_slow_as_its_person() -> None:
    with pytest.raises(ValueError, match="record the function with kit.record"):
        example.ring().overlap()


def test_a_run_without_operations_and_an_empty_one() -> None:
    drawing = TraceBuilder("f", ["..."], 2, "record")
    assert [numbers(rank) for rank in drawing.trace().overlap().ranks] == [(0, 0, 0)] * 2
    drawing.run(0, 10)
    (rank, _) = drawing.trace().overlap().ranks
    assert numbers(rank) == (0, 0, 0) and rank.exposed_share == 0.0 and microseconds(rank.computing) == [(0, 10)]
