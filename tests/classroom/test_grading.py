"""A class is graded: every answer gets its own mark, whatever the others do, and whenever the run is stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from kit.classroom.grading import Grading, Terms, tasks_in
from kit.classroom.ground import Ground
from kit.classroom.marks import Book, Graded
from kit.grade import discovery
from tests.classroom.conftest import Unwalled
from tests.classroom.made_class import AtTwenty, Made, Makes, as_expected

RANKS = discovery.labs()["00_ranks"]
LIMIT = 1000.0  # s


def graded(
    folder: Path,
    made: Sequence[Made],
    ground: Ground,
    each: bool = False,
    stop_after: int | None = None,
    ranks: int = 3,
) -> dict[tuple[str, str], Graded]:
    """The marks of a class by student and exercise. stop_after: so many runs."""
    handins = folder / "handed in"
    handins.mkdir(parents=True, exist_ok=True)
    for one in made:
        one.write(handins)
    tasks, _, _ = tasks_in(handins, None)
    terms = AtTwenty(**vars(Terms.agreed(folder / "marks", handins, None, ranks, 20)))
    book = Book(folder / "marks" / "marks.jsonl")
    grading = Grading(tasks, terms, book, ground, "no walls", LIMIT, each)
    run = grading.run(1)
    for number, _ in enumerate(run, 1):
        if number == stop_after:
            run.close()  # type: ignore[attr-defined]
            break
    return {(mark.student, mark.exercise): mark for mark in book}


def test_answers_of_every_kind_get_their_marks(tmp_path: Path, ground: Ground, unwalled: Unwalled) -> None:
    makes = Makes(RANKS)
    made = [makes.perfect(), makes.perfect("    # so it is\n"), makes.untouched(), makes.partial()]
    made += [*makes.broken(), *makes.around(), *makes.unreadable()]
    marks = graded(tmp_path, made, ground)
    assert list(as_expected(made, marks)) == []
    assert {mark.seed for mark in marks.values()} == {20, None}
    runs = len(unwalled.answers)
    assert len(set(unwalled.answers)) == 3 and runs < len(marks) / 3  # equal ones ran once
    _, troubles, _ = tasks_in(tmp_path / "handed in", None)
    for one in made:
        said = [trouble.sentence for trouble in troubles if trouble.student == one.student]
        assert bool(said) == bool(one.trouble), (one.kind, said)
        assert all(one.trouble in sentence for sentence in said)


def test_a_run_that_was_stopped_goes_on_to_the_same_marks(tmp_path: Path, ground: Ground, unwalled: Unwalled) -> None:
    makes = Makes(RANKS)
    made = [makes.perfect(), *islice(makes.mistaken(), 3), makes.partial()]
    whole = graded(tmp_path / "whole", made, ground)
    in_all = len(unwalled.answers)
    first = graded(tmp_path / "cut", made, ground, stop_after=2)
    assert 0 < len(first) < len(whole)
    file = tmp_path / "cut" / "marks" / "marks.jsonl"
    file.write_bytes(file.read_bytes()[:-40])  # and its last line was cut short
    unwalled.answers.clear()
    second = graded(tmp_path / "cut", made, ground)
    assert timeless(second) == timeless(whole)
    assert 0 < len(unwalled.answers) < in_all
    unwalled.answers.clear()
    assert timeless(graded(tmp_path / "cut", made, ground)) == timeless(whole)
    assert unwalled.answers == []
    assert timeless(graded(tmp_path / "each", made, ground, each=True)) == timeless(whole)


def timeless(marks: dict[tuple[str, str], Graded]) -> dict[tuple[str, str], Graded]:
    return {key: replace(mark, seconds=0.0) for key, mark in marks.items()}
