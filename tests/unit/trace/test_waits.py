"""Deadlock: named when it is proved, never when a motion could still free somebody."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.trace.facts import Phase, Place, RankState
from kit.trace.waits import deadlock, stuck


def at(line: int, file: str = "cell") -> Place:
    return Place(file, line, "f")


def waits(rank: int, operation: str, line: int = 4) -> RankState:
    return RankState(rank, "waiting", at(line), operation)


def ended(rank: int, phase: Phase = "finished") -> RankState:
    return RankState(rank, phase)


def test_a_rank_that_finished_without_the_collective() -> None:
    states = [waits(0, "all_reduce", 6), ended(1), waits(2, "all_reduce", 6), waits(3, "all_reduce", 6)]
    assert deadlock(states, {0: (1,), 2: (1,), 3: (1,)}) == (
        "Deadlock: ranks 0, 2, 3 wait in all_reduce (line 6); rank 1 finished without it."
    )


def test_both_send_first() -> None:
    states = [waits(0, "send to rank 1"), waits(1, "send to rank 0")]
    assert deadlock(states, {0: (1,), 1: (0,)}) == (
        "Deadlock: rank 0 waits in send to rank 1 (line 4), rank 1 waits in send to rank 0 (line 4): "
        "each waits for the other."
    )


def test_a_circle_of_three() -> None:
    states = [waits(r, f"send to rank {(r + 1) % 3}") for r in range(3)]
    assert deadlock(states, {0: (1,), 1: (2,), 2: (0,)}) == (
        "Deadlock: rank 0 waits in send to rank 1 (line 4), rank 1 waits in send to rank 2 (line 4), "
        "rank 2 waits in send to rank 0 (line 4): each waits for the next."
    )


def test_a_circle_of_two_with_a_third_behind_it() -> None:
    states = [waits(0, "recv from rank 1"), waits(1, "recv from rank 2"), waits(2, "recv from rank 1", 9)]
    text = deadlock(states, {0: (1,), 1: (2,), 2: (1,)})
    assert text is not None and text.endswith(": ranks 1 and 2 wait for each other.")


def test_a_circle_of_three_with_a_fourth_behind_it() -> None:
    states = [waits(0, "recv from rank 1"), *(waits(r, f"recv from rank {r % 3 + 1}") for r in (1, 2, 3))]
    text = deadlock(states, {0: (1,), 1: (2,), 2: (3,), 3: (1,)})
    assert text is not None and text.endswith(": ranks wait in a circle, 1 for 2, 2 for 3, 3 for 1.")


def test_a_chain_that_ends_at_a_finished_rank() -> None:
    states = [waits(0, "recv from rank 1"), waits(1, "recv from rank 2", 5), ended(2)]
    assert deadlock(states, {0: (1,), 1: (2,)}) == (
        "Deadlock: rank 0 waits in recv from rank 1 (line 4), rank 1 waits in recv from rank 2 (line 5); "
        "rank 2 finished without it."
    )


@pytest.mark.parametrize("phase", ["paused", "running", "stopped"])
def test_a_chain_that_ends_at_a_rank_that_may_go_on_is_none(phase: Phase) -> None:
    states = [waits(0, "recv from rank 1"), waits(1, "recv from rank 2"), RankState(2, phase, at(3))]
    assert deadlock(states, {0: (1,), 1: (2,)}) is None


@pytest.mark.parametrize(
    ("phase", "words"),
    [("finished", "finished without it"), ("failed", "failed without it"), ("dead", "died")],
)
def test_how_the_cause_ended_is_said(phase: Phase, words: str) -> None:
    text = deadlock([waits(0, "all_reduce", 6), ended(1, phase)], {0: (1,)})
    assert text == f"Deadlock: rank 0 waits in all_reduce (line 6); rank 1 {words}."


def test_several_causes() -> None:
    states = [waits(0, "all_reduce"), ended(1), ended(2, "dead"), ended(3)]
    text = deadlock(states, {0: (1, 2, 3)})
    assert text == ("Deadlock: rank 0 waits in all_reduce (line 4); ranks 1, 3 finished without it, rank 2 died.")


def test_subgroup_collectives_that_wait_for_each_other() -> None:
    states = [waits(0, "all_reduce", 6), waits(1, "broadcast from rank 0", 9), RankState(2, "paused", at(3))]
    assert deadlock(states, {0: (1,), 1: (0,)}) == (
        "Deadlock: rank 0 waits in all_reduce for rank 1 (line 6), "
        "rank 1 waits in broadcast from rank 0 (line 9): each waits for the other."
    )


def test_a_collective_needs_all_a_receive_from_any_source_needs_one() -> None:
    states = [waits(0, "all_reduce"), RankState(1, "paused", at(2)), ended(2)]
    assert deadlock(states, {0: (1, 2)}) is not None
    anyone = [waits(0, "recv from any rank"), RankState(1, "paused", at(2)), ended(2)]
    assert deadlock(anyone, {0: (1, 2)}) is None
    assert stuck([waits(0, "recv from any rank"), ended(1), ended(2)], {0: (1, 2)}) == {0}


def test_only_those_that_can_never_go_on_are_named() -> None:
    states = [waits(0, "recv from rank 1"), ended(1), waits(2, "recv from rank 3"), RankState(3, "paused", at(1))]
    assert stuck(states, {0: (1,), 2: (3,)}) == {0}
    text = deadlock(states, {0: (1,), 2: (3,)})
    assert text == "Deadlock: rank 0 waits in recv from rank 1 (line 4); rank 1 finished without it."


def test_a_wait_whose_partners_are_all_there_is_about_to_end() -> None:
    assert deadlock([waits(0, "all_reduce"), waits(1, "recv from rank 0")], {0: (), 1: (0,)}) is None
    assert deadlock([waits(0, "all_reduce"), ended(1)], {}) is None
    assert deadlock([waits(0, "recv from any rank"), ended(1)], {0: ()}) is None


def test_nobody_waits() -> None:
    assert deadlock([ended(0), ended(1), RankState(2, "paused", at(2))], {}) is None


def test_a_rank_that_waits_for_itself() -> None:
    text = deadlock([waits(0, "recv from rank 0"), ended(1)], {0: (0,)})
    assert text == "Deadlock: rank 0 waits in recv from rank 0 (line 4): it waits for itself."


def test_files_are_named_where_there_are_several() -> None:
    there = RankState(1, "waiting", at(30, "kit/topics/collectives/reference/collectives.py"), "recv from rank 0")
    text = deadlock([waits(0, "recv from rank 1"), there], {0: (1,), 1: (0,)})
    assert text is not None and "(line 4 of cell)" in text and "(line 30 of collectives.py)" in text


def test_a_large_circle_stays_readable() -> None:
    states = [waits(r, f"send to rank {(r + 1) % 64}") for r in range(64)]
    text = deadlock(states, {r: ((r + 1) % 64,) for r in range(64)})
    assert text is not None and "ranks 5 to 63 likewise" in text and len(text) < 400


@given(st.data())
def test_whoever_is_called_stuck_stays_stuck_whatever_the_others_do(data: st.DataObject) -> None:
    """Play any further course by the rules: live ranks post, end or wait; a stuck rank is never freed."""
    n = data.draw(st.integers(2, 5))
    phases = data.draw(st.lists(st.sampled_from(["paused", "finished", "waiting"]), min_size=n, max_size=n))
    states = [waits(r, "all_reduce") if p == "waiting" else RankState(r, p) for r, p in enumerate(phases)]
    others = {r: [o for o in range(n) if o != r] for r in range(n)}
    missing = {
        r: tuple(sorted(data.draw(st.sets(st.sampled_from(others[r]))))) for r, p in enumerate(phases) if p == "waiting"
    }
    caught = stuck(states, missing)
    # The most that can happen: every live rank posts everything that anybody misses of it, again and again.
    free = {r for r, p in enumerate(phases) if p == "paused"}
    for _ in range(n):
        free |= {r for r, needs in missing.items() if all(other in free for other in needs)}
    assert caught == {r for r in missing if r not in free}
    assert (deadlock(states, missing) is None) == (not caught)
