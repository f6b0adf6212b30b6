"""The words for every state, as a person reads them."""

from __future__ import annotations

import pytest

from kit.trace.facts import Failure, Place, Position, RankState
from kit.trace.text import duration, listed, named, operation_text, size

HERE = Place("cell", 8, "ring")
SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (
            RankState(0, "waiting", HERE, "recv from rank 3", (3,), since=0, now=1_900_000_000),
            "rank 0 waits in recv from rank 3 · line 8 · 1.9 s",
        ),
        (
            RankState(0, "waiting", HERE, "all_reduce", (1, 3), since=SECOND, now=SECOND),
            "rank 0 waits in all_reduce for ranks 1 and 3 · line 8",
        ),
        (
            RankState(2, "waiting", HERE, "broadcast from rank 0", (0,), since=0, now=40_000_000),
            "rank 2 waits in broadcast from rank 0 · line 8 · 40 ms",
        ),
        (
            RankState(2, "waiting", HERE, "broadcast from rank 0", (1,)),
            "rank 2 waits in broadcast from rank 0 for rank 1 · line 8",
        ),
        (
            RankState(1, "waiting", HERE, "recv from any rank", (0, 2)),
            "rank 1 waits in recv from any rank · line 8",
        ),
        (RankState(1, "waiting", None, "all_reduce"), "rank 1 waits in all_reduce"),
        (RankState(1, "paused", Place("cell", 5, "f")), "rank 1 paused before line 5"),
        (RankState(1, "paused", HERE, "all_reduce"), "rank 1 paused before line 8 · about to call all_reduce"),
        (RankState(1, "paused"), "rank 1 has not begun"),
        (RankState(3, "paused", HERE, held=True), "rank 3 held before line 8 by you"),
        (
            RankState(2, "running", Place("cell", 4, "f"), since=0, now=3 * SECOND),
            "rank 2 has been running for 3.0 s, last seen at line 4",
        ),
        (RankState(1, "finished"), "rank 1 finished"),
        (
            RankState(1, "failed", Place("cell", 7, "f"), error=Failure("ValueError", "boom\nmore", "", None)),
            "rank 1 failed at line 7: ValueError: boom",
        ),
        (RankState(1, "failed", error=Failure("KeyboardInterrupt", "", "", None)), "rank 1 failed: KeyboardInterrupt"),
        (
            RankState(1, "stopped", HERE, detail="stopped by SIGSTOP"),
            "rank 1 is stopped (SIGSTOP): continue it or reset the cluster",
        ),
        (RankState(2, "dead", detail="killed by SIGKILL"), "rank 2 died: killed by SIGKILL"),
    ],
)
def test_every_phase_has_its_sentence(state: RankState, words: str) -> None:
    assert str(state) == words


def test_a_position_reads_line_by_line_and_ends_with_its_verdict() -> None:
    states = (RankState(0, "finished"), RankState(1, "paused", HERE))
    assert str(Position("step", states, "Deadlock: so it is.")).splitlines() == [
        "rank 0 finished",
        "rank 1 paused before line 8",
        "Deadlock: so it is.",
    ]


@pytest.mark.parametrize(
    ("nanoseconds", "words"),
    [
        (0, "0 µs"),
        (12_000, "12 µs"),
        (949_000, "949 µs"),
        (950_000, "1 ms"),
        (40_000_000, "40 ms"),
        (99_600_000, "0.1 s"),
        (1_900_000_000, "1.9 s"),
        (99_940_000_000, "99.9 s"),
        (125_000_000_000, "2 min 5 s"),
        (179_900_000_000, "3 min 0 s"),
    ],
)
def test_durations_are_rounded_for_a_person(nanoseconds: int, words: str) -> None:
    assert duration(nanoseconds) == words


def test_ranks_are_listed_sorted_once_and_folded() -> None:
    assert listed([1]) == "rank 1"
    assert listed([2, 0, 3, 2]) == "ranks 0, 2, 3"
    assert listed([*range(16), 20]) == "ranks 0 to 15, 20"
    assert named([3, 1]) == "ranks 1 and 3"
    assert named([0, 2, 3]) == "ranks 0, 2 and 3"
    assert named([4]) == "rank 4"
    assert named(range(8)) == "ranks 0 to 7"


def test_operations_name_their_other_side() -> None:
    assert operation_text("recv", peer=3) == "recv from rank 3"
    assert operation_text("isend", peer=0) == "isend to rank 0"
    assert operation_text("recv", peer=-1) == "recv from any rank"
    assert operation_text("reduce", root=2) == "reduce to rank 2"
    assert operation_text("scatter", root=2) == "scatter from rank 2"
    assert operation_text("all_reduce") == "all_reduce"


def test_sizes_say_shape_and_dtype() -> None:
    assert size((4,), "float32") == "4 x float32"
    assert size((2, 3), "int64") == "2 x 3 x int64"
    assert size((), "float32") == "scalar float32"


def test_advice_says_what_frees_a_wait_and_whom_a_held_rank_keeps() -> None:
    position = Position(
        "step",
        (
            RankState(0, "waiting", HERE, "recv from rank 3", (3,)),
            RankState(1, "paused", HERE),
            RankState(2, "waiting", HERE, "all_reduce", (1, 3)),
            RankState(3, "paused", HERE, held=True),
        ),
    )
    assert position.advice(0) == "rank 3 is held before line 8"
    assert position.advice(1) == "step it to free rank 2"
    assert position.advice(2) == "rank 1 is paused before line 8, rank 3 is held before line 8"
    assert position.advice(3) == "let it go to free ranks 0 and 2"


def test_advice_groups_ranks_and_keeps_its_grammar() -> None:
    waits = RankState(0, "waiting", HERE, "all_reduce", (1, 2))
    assert Position("step", (waits, RankState(1, "stopped"), RankState(2, "stopped"))).advice(0) == (
        "ranks 1 and 2 are stopped"
    )
    assert Position("step", (waits, RankState(1, "running"), RankState(2, "running"))).advice(0) == (
        "ranks 1 and 2 still run"
    )
    assert Position("step", (RankState(0, "finished"),)).advice(0) is None


def test_a_rank_folds_into_the_whole_group_only_when_neighbours() -> None:
    assert listed([0, 2, 4, 6, 8]) == "ranks 0, 2, 4, 6, 8"
