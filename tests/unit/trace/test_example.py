"""The hand-made traces say what their names promise."""

from __future__ import annotations

import pytest

from tests.traces import example


def test_the_held_ring_is_the_situation_of_the_picture() -> None:
    position = example.held_ring().positions[-1]
    assert [str(state) for state in position] == [
        "rank 0 waits in recv from rank 3 · line 8 · 1.9 s",
        "rank 1 paused before line 5",
        "rank 2 waits in send to rank 3 · line 8 · 1.9 s",
        "rank 3 held before line 8 by you · about to call send",
    ]


def test_rank_1_has_added_and_rank_2_has_its_message() -> None:
    trace = example.held_ring()
    chunk = next(f for f in trace.ranks[1].stops[-1].frames[-1].tensors if f.name == "chunks[0]")
    assert chunk.values is not None and chunk.values.tolist() == [11.0, 11.0]
    assert trace.ranks[2].operations[1].ended is not None
    assert trace.ranks[3].operations == ()


def test_the_deadlock_is_proved() -> None:
    assert example.deadlock().positions[-1].verdict == (
        "Deadlock: rank 0 waits in send to rank 1 (line 4), rank 1 waits in send to rank 0 (line 4): "
        "each waits for the other."
    )
    assert all(position.verdict is None for position in example.deadlock().positions[:-1])


def test_the_failure_strands_the_others() -> None:
    position = example.failure().positions[-1]
    assert str(position[1]) == "rank 1 failed at line 7: ValueError: boom"
    assert position.verdict == "Deadlock: ranks 0, 2 wait in all_reduce (line 8); rank 1 failed without it."


@pytest.mark.parametrize("name", ["ring", "held_ring", "via_root", "deadlock", "failure", "overlap"])
def test_every_line_that_is_named_exists(name: str) -> None:
    trace = getattr(example, name)()
    for rank in trace.ranks:
        for stop in rank.stops:
            place = stop.frames[-1].place
            source = trace.source(place.file)
            assert source is not None and 1 <= place.line <= len(source.lines)
        for op in rank.operations:
            source = trace.source(op.place.file)
            words = {"send": ("send", "exchange"), "recv": ("recv", "exchange")}.get(op.name, (op.name,))
            assert any(word in source.lines[op.place.line - 1] for word in words)
