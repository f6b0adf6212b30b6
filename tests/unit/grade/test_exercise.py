"""Identity lives in code; solutions are found by it and can be swapped in."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from kit.grade import answers, discovery, hints
from kit.grade.answers import NotAttempted, exercise, exercise_of, solution_of
from kit.grade.hints import hint, solution


@pytest.fixture(autouse=True)
def _nothing_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(answers.SOLUTIONS, raising=False)
    monkeypatch.setattr(hints, "_given", {})


def test_the_decorator_returns_the_function_itself_and_remembers_its_identity() -> None:
    def stub(x: int) -> int:
        """Doc."""
        raise NotAttempted

    marked = exercise("broadcast")(stub)
    assert marked is stub
    assert exercise_of(marked) is discovery.find("broadcast")


def test_an_unknown_identity_lists_the_ids_of_the_lab_that_was_meant() -> None:
    with pytest.raises(ValueError, match="ring-allreduce") as error:
        exercise("ring-allreduce")
    assert "lab 01a_collectives has broadcast, ring-all-reduce, repair-deadlock" in str(error.value)
    assert "who-am-i" not in str(error.value)


def test_an_identity_like_no_other_lists_all_labs() -> None:
    with pytest.raises(ValueError, match="who-am-i.*ring-all-reduce"):
        exercise("zzzzzz")


def test_a_decorator_without_its_brackets_says_how_to_write_it() -> None:
    with pytest.raises(ValueError, match="in quotes"):
        exercise(lambda x: x)  # type: ignore[arg-type]


def test_a_function_that_is_no_exercise_says_what_to_write() -> None:
    def plain() -> None: ...

    with pytest.raises(ValueError, match="plain is not marked as an exercise"):
        exercise_of(plain)


def test_every_exercise_has_a_solution_of_that_name_with_a_docstring() -> None:
    for each in discovery.exercises().values():
        function = solution_of(each)
        assert function.__name__ == each.function
        assert function.__doc__


@pytest.mark.parametrize(("value", "swapped"), [("1", True), ("", False), ("0", False)])
def test_the_environment_swaps_in_all_labs(monkeypatch: pytest.MonkeyPatch, value: str, swapped: bool) -> None:
    def mine() -> None: ...

    monkeypatch.setenv(answers.SOLUTIONS, value)
    assert (exercise("who-am-i")(mine) is not mine) is swapped


def test_solutions_travel_by_value() -> None:
    import cloudpickle

    blob = cloudpickle.dumps(solution_of(discovery.find("broadcast")))
    code = f"import pickle; f = pickle.loads({blob!r}); print(f.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "broadcast", done.stderr


def test_hints_come_in_three_grades_and_the_last_one_stays() -> None:
    said = [hint("broadcast") for _ in range(4)]
    assert [each.grade for each in said] == [1, 2, 3, 3]
    assert len({each.words for each in said}) == 3
    assert "solution('broadcast')" in str(said[2]) and "solution(" not in str(said[0])
    assert hint("tree-broadcast").grade == 1


def test_hints_and_solutions_of_unknown_exercises_list_the_known_ones() -> None:
    for ask in (hint, solution):
        with pytest.raises(ValueError, match="tree-broadcast"):
            ask("tree-brodcast")


def test_a_solution_shows_its_text() -> None:
    function = solution_of(discovery.find("tree-broadcast"))
    opened = solution("tree-broadcast")
    assert str(opened).startswith(inspect.getsource(function))
    assert "def tree_broadcast" in opened._repr_html_()


def test_the_package_loads_without_torch() -> None:
    code = "import sys; from kit.grade import discovery; discovery.exercises(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
