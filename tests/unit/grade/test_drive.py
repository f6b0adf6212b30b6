"""An exercise whose function is not called but put to use: hooks are attached, then backward runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kit.grade.answers import NotAttempted
from kit.grade.checker import Trouble, Unattempted, attempt, watched
from kit.grade.exercise import Case
from kit.trace.facts import Failure, Place, Position, RankState
from tests.unit.grade.made import run


def keeps(calls: list[int], value: int) -> None:
    calls.append(value)


def stub(calls: list[int], value: int) -> None:
    raise NotAttempted


def twice(function: Any, calls: list[int], value: int) -> int:
    function(calls, value)
    function(calls, 2 * value)
    return len(calls)


def test_a_drive_decides_what_is_returned_and_arguments_are_seen_afterwards() -> None:
    assert watched(keeps, twice)([], 3) == (2, ([3, 6], 3))
    assert watched(keeps)([], 3) == (None, ([3], 3))


def test_a_stub_that_a_drive_meets_is_not_attempted() -> None:
    def runner(function: Any, world: int, arguments: Any) -> Any:
        return [function(*one) for one in arguments], run(world).trace

    with pytest.raises(Unattempted):
        attempt(stub, Case(2, (([], 1), ([], 5)), 1, {}, twice), runner)


def test_a_case_names_its_drive() -> None:
    def runner(function: Any, world: int, arguments: Any) -> Any:
        return [function(*one) for one in arguments], run(world).trace

    case = Case(2, (([], 1), ([], 5)), 1, {}, twice)
    seen = attempt(keeps, case, runner)
    assert seen.results == (2, 2)
    assert seen.after == (([1, 2], 1), ([5, 10], 5))


def test_a_failure_in_what_the_drive_does_names_no_line_of_ours() -> None:
    here = watched.__code__.co_filename
    places = {0: Place(here, 58, "watch"), 1: Place("<answer>", 7, "answer")}
    states = tuple(
        RankState(rank, "failed", place, error=Failure("ValueError", "no", "", place)) for rank, place in places.items()
    )

    class Failed(Exception):
        trace = replace(run(2).trace, positions=(Position("finish", states),))

    def runner(function: Any, world: int, arguments: Any) -> Any:
        raise Failed("rank 0 failed at line 58: ValueError: no\nrank 1 failed at line 7: ValueError: no")

    with pytest.raises(Trouble, match="^rank 0 failed: ValueError: no\nrank 1 failed at line 7: ValueError: no$"):
        attempt(keeps, Case(2, (([], 1), ([], 5)), 1, {}, twice), runner)
