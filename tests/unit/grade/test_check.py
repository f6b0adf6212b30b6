"""The order of a check and what its verdict says, with a runner that has no ranks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kit.grade import discovery
from kit.grade.answers import NotAttempted, exercise, solution_of
from kit.grade.checker import Unattempted, attempt, check, watched
from kit.grade.exercise import Case
from kit.grade.hints import solution
from kit.grade.verdict import Verdict, latest
from tests.unit.grade.made import Failed, operation, run, serial_runner


@exercise("who-am-i")
def mine(total: int) -> tuple[int, int]:
    raise NotAttempted


def share(rank: int, arguments: tuple[Any, ...], world: int) -> tuple[int, int]:
    base, extra = divmod(arguments[0], world)
    start = rank * base + min(rank, extra)
    return start, start + base + (rank < extra)


def test_right_values_and_no_traffic_pass_on_every_world() -> None:
    verdict = check(mine, serial_runner(share), ranks=5)
    assert verdict.passed and verdict.attempted and verdict.worlds == (2, 3, 4, 5)
    assert "right on 2 to 5 ranks" in str(verdict) and "Nothing to add." in str(verdict)


def test_a_lab_that_came_without_its_solutions_is_checked_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_target = check(mine, serial_runner(share), ranks=3)
    lab = replace(discovery.labs()["00_ranks"], solutions=tmp_path / "00_ranks.py")
    monkeypatch.setattr(discovery, "labs", lambda: {"00_ranks": lab})
    verdict = check(mine, serial_runner(share), ranks=3)
    assert with_target.passed and with_target.target is not None
    assert verdict.passed and verdict.target is None
    with pytest.raises(ValueError, match="came without its solutions: ask who gave it to you for 00_ranks.py"):
        solution("who-am-i")


def test_a_pass_on_two_ranks_says_what_it_could_not_see() -> None:
    assert "On 2 ranks left is right" in str(check(mine, serial_runner(share), ranks=2))


def test_values_come_first_and_tell_on_which_worlds_they_are_right() -> None:
    def right_on_two(rank: int, arguments: tuple[Any, ...], world: int) -> Any:
        return share(rank, arguments, world) if world == 2 else (0, arguments[0])

    verdict = check(mine, serial_runner(right_on_two, lambda n: [operation(0, "barrier")]), ranks=4)
    assert (verdict.status, verdict.stage) == ("failed", "values")
    assert verdict.sentence.startswith("right on 2 ranks only; on 3 ranks, total = ")


def test_an_exercise_may_want_a_larger_world_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def spy(rank: int, arguments: tuple[Any, ...], world: int) -> Any:
        tried.append(world)
        return share(rank, arguments, world)

    monkeypatch.setattr(
        "kit.grade.checker.exercise_of", lambda function: replace(discovery.find("who-am-i"), beyond=(3, 7))
    )
    verdict = check(mine, serial_runner(spy), ranks=4)
    assert verdict.worlds == (2, 3, 4, 7) and "right on 2 to 4 and 7 ranks" in verdict.sentence
    assert tried.count(7) == 7, "one case is enough there"


def test_a_function_that_takes_a_group_is_tried_in_one() -> None:
    @exercise("sharded-gradients")
    def keep(gradient: Any, kept: Any, group: Any = None) -> Any: ...

    def runner(function: Any, world: int, arguments: Any) -> Any:
        """Right, except for one who is called with a group and counts the world."""
        in_a_group = len(function.__closure__[function.__code__.co_freevars.index("members")].cell_contents)
        case = next(case for case in CASES[in_a_group or world] if case.arguments[0][0][0].equal(arguments[0][0][0]))
        right = discovery.find("sharded-gradients").oracle(case)
        operations = [operation(r, "reduce_scatter", 4, line=5) for r in range(world) for _ in range(3)]
        results = [mine * in_a_group / world for mine in right] + [None] if in_a_group else right
        return list(zip(results, arguments, strict=True)), run(world, [] if in_a_group else operations, arguments).trace

    cases = discovery.find("sharded-gradients").cases
    CASES = {world: list(cases(world, Random(f"1/{world}"))) for world in (2, 3)}
    verdict = check(keep, runner, ranks=3, seed=1)
    assert verdict.stage == "values"
    assert verdict.sentence.startswith("right on 2 to 3 ranks; in a group of ranks 0 and 1 of 3: rank 0 returned")
    assert verdict.sentence.endswith("(dist.get_rank(group) and dist.get_world_size(group) count within the group)")


def test_leaving_the_group_out_of_the_arguments_is_no_way_round() -> None:
    @exercise("sharded-gradients")
    def keep(gradient: Any, kept: Any) -> Any: ...

    def runner(function: Any, world: int, arguments: Any) -> Any:
        (case,) = (case for case in CASES[world] if case.arguments[0][0][0].equal(arguments[0][0][0]))
        operations = [operation(r, "reduce_scatter", 4, line=5) for r in range(world) for _ in range(3)]
        right = discovery.find("sharded-gradients").oracle(case)
        return list(zip(right, arguments, strict=True)), run(world, operations, arguments).trace

    cases = discovery.find("sharded-gradients").cases
    CASES = {world: list(cases(world, Random(f"1/{world}"))) for world in (2, 3)}
    assert check(keep, runner, ranks=2, seed=1).passed, "two ranks have no part of them that could be a group"
    verdict = check(keep, runner, ranks=3, seed=1)
    assert verdict.stage == "values"
    assert verdict.sentence.startswith("right on 2 to 3 ranks; keep_shard no longer takes a group")


def test_what_a_library_says_gives_way_to_what_did_not_fit() -> None:
    ours = "rank 0 gives rank 1 9 elements in reduce_scatter (line 9), rank 1 makes room for 10: both must be equal."
    theirs = "rank 1 failed at line 9: RuntimeError: [F1122 ProcessGroupGloo.cpp:2216] Check failed"

    def sentence(said: str) -> str:
        def failed(rank: int, arguments: tuple[Any, ...], world: int) -> Any:
            raise Failed(said)

        return check(mine, serial_runner(failed), ranks=2).sentence

    assert sentence(f"{theirs}\n{ours}").endswith(f": {ours}")
    assert theirs in sentence(theirs), "where nothing else is said it stays"
    address = "ValueError: Global rank 0 is not part of group <kit.probe.ObservedGroup object at 0x7f1deec1ca70>"
    assert "is not part of this group" in sentence(f"rank 3 failed at line 9: {address}")


def test_traffic_comes_after_values_and_says_where_they_are_right() -> None:
    verdict = check(mine, serial_runner(share, lambda n: [operation(1, "barrier", line=4)]), ranks=3)
    assert (verdict.status, verdict.stage) == ("failed", "traffic")
    assert "Values: right on 2, 3 ranks. Traffic: rank 1 called barrier, from line 4" in str(verdict)


def test_the_same_seed_draws_the_same_inputs_and_is_named() -> None:
    drawn: list[list[Any]] = []

    def spy(rank: int, arguments: tuple[Any, ...], world: int) -> Any:
        drawn[-1].append(arguments)
        return 0, 0

    for seed in (11, 11, 12):
        drawn.append([])
        verdict = check(mine, serial_runner(spy), ranks=3, seed=seed)
    assert drawn[0] == drawn[1] != drawn[2]
    assert "seed=12" in str(verdict)


def test_without_a_seed_inputs_are_fresh() -> None:
    seeds = {check(mine, serial_runner(share), ranks=2).seed for _ in range(4)}
    assert len(seeds) > 1


def test_a_stub_is_not_attempted_and_the_target_is_shown() -> None:
    calls: list[str] = []

    def runner(function: Any, world: int, arguments: Any) -> Any:
        calls.append(function.__name__)
        if function.__name__ == "mine":
            return [function(*arguments[rank]) for rank in range(world)], None
        return serial_runner(share)(function, world, arguments)

    verdict = check(mine, runner, ranks=4)
    assert str(verdict) == "who-am-i: not attempted" and verdict.run is None
    assert calls == ["mine", "my_share"]
    assert verdict.target is not None and "The target, on 4 ranks" in verdict._repr_html_()


def test_trouble_on_a_rank_becomes_the_sentence_with_advice() -> None:
    @exercise("repair-deadlock")
    def shift(x: Any) -> Any: ...

    def dead(rank: int, arguments: tuple[Any, ...], world: int) -> Any:
        raise Failed("Deadlock: rank 0 waits in send to rank 1 (line 4), rank 1 waits in send to rank 0 (line 4)")

    def runner(function: Any, world: int, arguments: Any) -> Any:
        answer = dead if function.__name__ == "shift" else lambda rank, arguments, world: None
        return serial_runner(answer)(function, world, arguments)

    verdict = check(shift, runner, ranks=3)
    assert verdict.stage == "values" and "Deadlock: rank 0 waits" in verdict.sentence
    assert "start the send with dist.isend" in verdict.sentence


def test_an_exception_gets_the_advice_for_errors_and_none_for_hangs() -> None:
    @exercise("average-gradients")
    def average(model: Any, group: Any = None) -> Any: ...

    said = "rank 0 failed at line 4: TypeError: {}; rank 1 never finished"

    def sentence(error: str) -> str:
        def failed(rank: int, arguments: tuple[Any, ...], world: int) -> Any:
            raise Failed(said.format(error))

        return check(average, serial_runner(failed), ranks=2).sentence

    assert sentence("unsupported operand type(s) for /: 'NoneType' and 'int'").endswith("and returns None.")
    assert "A frozen parameter's p.grad is None" in sentence("Expected parameter `tensor` of type torch.Tensor")
    assert sentence("something else").endswith("rank 1 never finished")


def test_errors_of_the_cluster_itself_pass_through() -> None:
    def runner(function: Any, world: int, arguments: Any) -> Any:
        raise ConnectionError("the cluster is gone")

    with pytest.raises(ConnectionError):
        check(mine, runner, ranks=2)


def test_a_target_that_cannot_be_run_costs_the_picture_and_not_the_verdict() -> None:
    def runner(function: Any, world: int, arguments: Any) -> Any:
        if function.__name__ == "my_share":
            raise Failed("the cluster lost a rank")
        return serial_runner(share)(function, world, arguments)

    verdict = check(mine, runner, ranks=2)
    assert verdict.passed and verdict.target is None
    assert "The target could not be run beside it: the cluster lost a rank" in str(verdict)
    assert "the cluster lost a rank" in verdict._repr_html_()


def test_one_rank_is_too_few() -> None:
    with pytest.raises(ValueError, match="at least 2 ranks"):
        check(mine, serial_runner(share), ranks=1)


def test_the_watched_function_returns_its_arguments_as_it_left_them() -> None:
    def change(x: list[int]) -> int:
        x.append(2)
        return 3

    assert watched(change)([1]) == (3, ([1, 2],))
    with pytest.raises(Unattempted):
        attempt(
            mine, Case(2, ((4,), (4,)), 4), lambda function, world, arguments: ([function(4)] * world, run(world).trace)
        )


def test_results_and_arguments_are_kept_apart() -> None:
    case = Case(2, ((4,), (4,)), 4)
    done = attempt(mine, case, serial_runner(share))
    assert done.results == ((0, 2), (2, 4)) and done.after == ((4,), (4,))


def test_the_card_escapes_and_shows_run_beside_target() -> None:
    verdict = check(mine, serial_runner(share, lambda n: [operation(0, "<b>")]), ranks=2)
    html = verdict._repr_html_()
    assert "Show my run beside the target" in html and html.count("<table") == 2
    assert "called &lt;b&gt;" in html and "<b>," not in html


def test_the_latest_verdict_stands_beside_the_solution() -> None:
    verdict = check(mine, serial_runner(share), ranks=2)
    assert latest("who-am-i") is verdict
    assert "my run (2 ranks)" in str(solution("who-am-i"))
    assert isinstance(verdict, Verdict)


def test_every_exercise_draws_cases_its_oracle_can_answer() -> None:
    from random import Random

    for each in discovery.exercises().values():
        for world in (2, 3, 4, 7):
            cases = list(each.cases(world, Random(5)))
            assert len(cases) >= 2
            for case in cases:
                assert case.world == len(case.arguments) == len(each.oracle(case)) == world
        assert len(set(each.hints)) == 3
        assert each in discovery.labs()[each.lab].exercises and solution_of(each)


def test_sizes_go_below_the_number_of_ranks() -> None:
    from random import Random

    for identity in ("ring-all-reduce", "all-reduce-from-halves", "who-am-i", "repair-deadlock"):
        sizes = [case.size for case in discovery.find(identity).cases(4, Random(3))]
        assert min(sizes) < 4 and any(size % 4 for size in sizes) and any(size % 4 == 0 for size in sizes)
