"""Spans: whole, disjoint, and free of the person's time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.trace.clocks import Active
from kit.trace.facts import Mode, Operation, Region
from kit.trace.timeline import Span
from kit.trace.trace import Trace
from tests.traces import example
from tests.traces.builder import TraceBuilder

X = [Region("inout", 1, 0, (4,), "float32")]
Action = tuple[str, int, int, int]  # (what, rank, other rank, microseconds)


def draw(program: list[Action], world: int, mode: Mode) -> Trace:
    """Play a program; as a stepped run every action is a motion of its own and a person thinks in between."""
    drawing = TraceBuilder("f", ["..."], world, mode)
    pending: list[list[Operation]] = [[] for _ in range(world)]
    for number, (what, rank, other, microseconds) in enumerate(program):
        match = f"0/{number}"
        if what == "compute":
            drawing.run(rank, microseconds)
        elif what == "message" and rank != other:
            send = drawing.issue(rank, "send", match, 1, X, peer=other)
            since = drawing.at[rank]
            drawing.position("step")  # the sender waits while the person thinks, then the receiver comes
            receive = drawing.issue(other, "recv", match, 2, X, peer=rank)
            drawing.move(match, microseconds)
            drawing.at[rank] = since
            drawing.wait(send)
            drawing.wait(receive)
        elif what == "collective":
            parts = [drawing.issue(member, "all_reduce", match, 3, X) for member in range(world)]
            drawing.move(match, microseconds)
            if other % 2:  # asynchronous: waited for later
                for part in parts:
                    pending[part.rank].append(part)
            else:
                for part in parts:
                    drawing.wait(part)
        elif what == "wait":
            for part in pending[rank]:
                drawing.wait(part)
            pending[rank] = []
        drawing.position("step")
    return drawing.trace()


def programs(world: int) -> st.SearchStrategy[list[Action]]:
    rank = st.integers(0, world - 1)
    what = st.sampled_from(["compute", "compute", "message", "collective", "wait"])
    return st.lists(st.tuples(what, rank, rank, st.integers(1, 500)), max_size=12)


def lanes(spans: tuple[Span, ...]) -> dict[tuple[int, int], list[Span]]:
    found: dict[tuple[int, int], list[Span]] = defaultdict(list)
    for span in spans:
        found[span.rank, span.lane].append(span)
    return found


@given(st.integers(1, 4).flatmap(lambda n: st.tuples(st.just(n), programs(n))))
def test_spans_fill_a_rank_s_time_without_overlap(case: tuple[int, list[Action]]) -> None:
    world, program = case
    trace = draw(program, world, "record")
    for (rank, lane), spans in lanes(trace.spans()).items():
        assert all(span.start < span.end for span in spans)
        assert all(a.end <= b.start for a, b in zip(spans, spans[1:], strict=False))
        if lane == 0:
            total = sum(end - start for start, end in trace.ranks[rank].active)
            assert sum(span.end - span.start for span in spans) == pytest.approx(total / 1e9)
        else:
            assert {span.kind for span in spans} == {"communicate"}


@given(st.integers(1, 4).flatmap(lambda n: st.tuples(st.just(n), programs(n))))
def test_the_time_a_person_takes_leaves_no_trace(case: tuple[int, list[Action]]) -> None:
    world, program = case
    stepped, recorded = draw(program, world, "step"), draw(program, world, "record")
    if any(what == "collective" and other % 2 for what, _, other, _ in program):
        return  # what overlaps with computing lasts differently when a person stands in between: seen below
    assert stepped.spans() == recorded.spans()


@given(st.integers(2, 4).flatmap(lambda n: st.tuples(st.just(n), programs(n))))
def test_hidden_and_exposed_parts_make_up_an_operation(case: tuple[int, list[Action]]) -> None:
    world, program = case
    trace = draw(program, world, "record")
    moving = [span for span in trace.spans() if span.kind == "communicate"]
    for rank in trace.ranks:
        waited = [interval for op in rank.operations for interval in op.waits]
        for op in rank.operations:
            if op.began is None or op.ended is None:
                continue
            own = sum(s.end - s.start for s in moving if s.rank == rank.rank and s.match == op.match)
            elsewhere = sum(
                max(0, min(end, op.ended) - max(start, op.began))
                for start, end in waited
                if (start, end) not in op.waits
            )
            assert own * 1e9 + elsewhere >= op.ended - op.began - 1e-3


def test_the_held_ring_looks_like_the_picture() -> None:
    spans = example.held_ring().spans()
    last = {rank: [s for s in spans if s.rank == rank and s.lane == 0][-1] for rank in range(4)}
    assert [last[rank].kind for rank in range(4)] == ["wait", "compute", "wait", "held"]
    assert [last[rank].open for rank in range(4)] == [True, False, True, True]
    assert last[0].label == "recv from rank 3" and last[2].label == "send to rank 3"
    assert last[3].label == "held by you" and last[3].place is not None and last[3].place.line == 8
    assert len({last[rank].end for rank in range(4)}) == 1, "open spans reach to the latest clock"
    assert max(span.end for span in spans) < 1e-3, "0.4 s of thinking between motions are cut out"


def test_an_open_wait_is_long_enough_to_be_seen() -> None:
    spans = example.deadlock().spans()
    for rank in range(2):
        own = [span for span in spans if span.rank == rank]
        assert own[-1].kind == "wait" and own[-1].open
        assert own[-1].end - own[-1].start >= 0.0499 * own[-1].start


def test_stepped_overlap_is_hidden_on_the_virtual_clock() -> None:
    recorded = example.overlap()
    spans = replace(recorded, meta=replace(recorded.meta, mode="step")).spans()
    assert spans == recorded.spans()


def test_an_operation_begins_at_its_last_arrival_on_virtual_clocks() -> None:
    trace = draw([("compute", 0, 0, 100), ("compute", 1, 0, 300), ("collective", 0, 0, 50)], 2, "step")
    kinds = {
        rank: [(s.kind, round(s.start * 1e6), round(s.end * 1e6)) for s in trace.spans() if s.rank == rank]
        for rank in (0, 1)
    }
    assert kinds[0] == [("compute", 0, 100), ("wait", 100, 300), ("communicate", 300, 350)]
    assert kinds[1] == [("compute", 0, 300), ("communicate", 300, 350)]


def test_a_wait_that_raised_does_not_stop_the_clock() -> None:
    """A dead-locked send was freed by raising: the rank went on, and so does its time."""
    drawing = TraceBuilder("f", ["..."], 2, "step")
    drawing.run(0, 100)
    drawing.run(1, 400)
    send = drawing.issue(0, "send", "0/p/0>1/0/0", 1, X, peer=1)
    drawing.operations[0][send.index] = replace(send, waits=((100_000, 900_000),), error="dead-locked")
    drawing.at[0] = 900_000
    drawing.run(0, 50)
    drawing.position("step")
    assert [(s.kind, round(s.end * 1e6)) for s in drawing.trace().spans() if s.rank == 0] == [("compute", 150)]


def test_lanes_of_hidden_communication_do_not_overlap() -> None:
    drawing = TraceBuilder("f", ["..."], 2, "record")
    for number, microseconds in enumerate((300, 300, 50)):
        for rank in range(2):
            drawing.issue(rank, "all_reduce", f"0/c/{number}", 1, X)
        drawing.move(f"0/c/{number}", microseconds)
        for rank in range(2):
            drawing.run(rank, 200)
    found = lanes(drawing.trace().spans())
    assert {lane for _, lane in found} == {0, 1, 2}
    for spans in found.values():
        assert all(a.end <= b.start for a, b in zip(spans, spans[1:], strict=False))


def test_setting_up_before_the_first_stop_is_no_computing() -> None:
    drawing = TraceBuilder("f", ["..."], 2, "step")
    for rank in range(2):
        drawing.run(rank, 5000 * (rank + 1))
        drawing.stop(rank, 1)
    drawing.position("start")
    for rank in range(2):
        drawing.run(rank, 30)
        drawing.stop(rank, 1)
    drawing.position("step")
    assert [(span.kind, round(span.end * 1e6)) for span in drawing.trace().spans()] == [("compute", 30)] * 2


def test_an_empty_trace_has_no_spans() -> None:
    for mode in ("step", "record"):
        assert TraceBuilder("f", [], 3, mode).trace().spans() == ()  # type: ignore[arg-type]


def test_active_time_between_two_moments() -> None:
    active = Active([(10, 20), (30, 50)])
    assert active.between(0, 100) == 30
    assert active.between(15, 35) == 10
    assert active.between(20, 30) == 0
    assert active.between(35, 35) == 0
    assert Active([]).between(5, 9) == 4


def held_by_turns(program: list[Action], world: int, held: bool) -> Trace:
    """Every action moves its own ranks alone; the others are held meanwhile, or are said not to be."""
    drawing = TraceBuilder("f", ["..."], world, "step")
    for rank in range(world):
        drawing.stop(rank, 1)
    drawing.position("start")
    for number, (what, rank, other, microseconds) in enumerate(program):
        moved = [rank]
        if what == "compute" or rank == other:
            drawing.run(rank, microseconds)
        else:
            moved = sorted({rank, other}) if what == "message" else list(range(world))
            match = f"0/{number}"
            send = drawing.issue(rank, "send", match, 1, X, peer=other) if what == "message" else None
            parts = [drawing.issue(other, "recv", match, 2, X, peer=rank)] if send else []
            parts = [send, *parts] if send else [drawing.issue(one, "all_reduce", match, 3, X) for one in moved]
            drawing.move(match, microseconds)
            for part in parts:
                drawing.wait(part)
        for one in moved:
            drawing.stop(one, 1)
        drawing.position("step", held=[one for one in range(world) if held and one not in moved])
    return drawing.trace()


@given(st.integers(2, 4).flatmap(lambda n: st.tuples(st.just(n), programs(n))))
def test_a_hold_adds_to_a_rank_s_time_what_the_others_worked_and_nothing_else(case: tuple[int, list[Action]]) -> None:
    world, program = case
    with_holds = held_by_turns(program, world, True).spans()
    worked = defaultdict(float)
    for span in with_holds:
        worked[span.rank, span.kind] += span.end - span.start
    for rank in range(world):
        own = [span for span in with_holds if (span.rank, span.lane) == (rank, 0)]
        assert not own or own[0].start == 0
        assert all(a.end == pytest.approx(b.start) for a, b in zip(own, own[1:], strict=False))
    for span in held_by_turns(program, world, False).spans():
        worked[span.rank, span.kind] -= span.end - span.start
    kinds = {kind for (_, kind), seconds in worked.items() if seconds > 1e-12}
    assert kinds <= {"held", "wait"}
    assert all(abs(seconds) < 1e-12 for (_, kind), seconds in worked.items() if kind in ("compute", "communicate"))


def test_a_rank_that_was_held_is_drawn_as_held_and_not_as_waiting() -> None:
    drawing = TraceBuilder("f", ["..."], 2, "step")
    for rank in (0, 1):
        drawing.stop(rank, 1)
    drawing.position("start")
    drawing.run(0, 50)
    early = drawing.issue(0, "all_reduce", "0/c/0", 2, X)
    drawing.waits(0, 2, "all_reduce", [1])
    drawing.position("step", held=[1])
    since = drawing.at[0]
    drawing.run(1, 10)
    late = drawing.issue(1, "all_reduce", "0/c/0", 2, X)
    drawing.move("0/c/0", 30)
    drawing.at[0] = since
    drawing.wait(early)
    drawing.wait(late)
    for rank in (0, 1):
        drawing.stop(rank, 3)
    drawing.position("step")
    told = [(span.rank, span.kind, round(1e6 * span.start), round(1e6 * span.end)) for span in drawing.trace().spans()]
    assert told == [
        (0, "compute", 0, 50),
        (0, "wait", 50, 60),
        (0, "communicate", 60, 90),
        (1, "held", 0, 50),
        (1, "compute", 50, 60),
        (1, "communicate", 60, 90),
    ]
