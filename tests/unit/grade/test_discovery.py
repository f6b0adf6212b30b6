"""Labs and exercises are found by being there, shipped ones and own ones alike."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kit import resources
from kit.cli.new import new
from kit.grade import answers, discovery
from kit.grade.exercise import Exercise, Mistake


def test_every_shipped_notebook_is_a_lab_and_its_exercises_name_it() -> None:
    assert list(discovery.labs()) == [notebook.stem for notebook in resources.shipped().notebooks()]
    for lab in discovery.labs().values():
        assert lab.exercises and {exercise.lab for exercise in lab.exercises} == {lab.name}
        assert lab.solutions.is_file()


NAMES = "from kit.grade import discovery; print(*discovery.labs()); print(*discovery.exercises())"


def discovered(*folders: Path, code: int = 0, program: str = NAMES) -> str:
    """What a fresh process finds, or the last line of its error."""
    environment = {**os.environ, resources.OWN_LABS: os.pathsep.join(map(str, folders))}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr.splitlines()[-1]


def test_a_lab_in_any_folder_is_found_and_the_folder_named_first_counts(tmp_path: Path) -> None:
    new("99_sample", tmp_path / "one", tmp_path)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    exercises = tmp_path / "two" / "topics" / "sample" / "exercises.py"
    exercises.write_text(exercises.read_text().replace("sample-mean", "sample-median"))
    assert discovered(tmp_path / "one").split()[-1] == "sample-mean"
    assert discovered(tmp_path / "two", tmp_path / "one").split()[-1] == "sample-median"
    assert "99_sample" in discovered(tmp_path / "one") and "99_sample" not in discovered(tmp_path)


def test_each_notebook_of_a_topic_has_its_own_exercises(tmp_path: Path) -> None:
    new("99a_sample", tmp_path, tmp_path)
    shutil.copy(tmp_path / "99a_sample.ipynb", tmp_path / "99b_sample.ipynb")
    exercises = tmp_path / "topics" / "sample" / "exercises.py"
    again = (
        '\nfrom dataclasses import replace\nEXERCISES += (replace(EXERCISES[0], id="sample-sum", lab="99b_sample"),)\n'
    )
    exercises.write_text(exercises.read_text() + again)
    program = "from kit.grade.discovery import labs; print(*(each.id for each in labs()['{}'].exercises))"
    assert discovered(tmp_path, program=program.format("99a_sample")).split() == ["sample-mean"]
    assert discovered(tmp_path, program=program.format("99b_sample")).split() == ["sample-sum"]
    (tmp_path / "99b_sample.ipynb").unlink()
    assert "the exercise 'sample-sum' is said to belong to lab 99b_sample" in discovered(tmp_path, code=1)


def test_a_folder_of_topics_is_one_of_ours_where_a_notebook_is_named_for_a_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(resources.OWN_LABS, str(tmp_path))
    new("99_sample", tmp_path, tmp_path)
    other = tmp_path / "topics" / "weather" / "reference.py"
    other.parent.mkdir()
    other.write_text("")
    assert [folder.labs for folder in resources.own()] == [tmp_path]
    sample = str(tmp_path / "topics" / "sample" / "reference.py")
    assert resources.reference_label(sample) == "kit/topics/sample/reference.py"
    assert resources.reference_label(str(other)) is None
    (tmp_path / "99_sample.ipynb").unlink()
    assert resources.own() == [] and resources.reference_label(sample) is None


@pytest.mark.parametrize(
    ("old", "other", "sentence"),
    [
        ("sample", "ranks", "has the topic of lab 00_ranks: give it, and its folder, another name"),
        ("sample-mean", "broadcast", "lab 99_sample has an exercise 'broadcast', and lab 01a_collectives has one too"),
    ],
)
def test_names_that_are_taken_are_told(tmp_path: Path, old: str, other: str, sentence: str) -> None:
    new("99_sample", tmp_path, tmp_path)
    exercises = tmp_path / "topics" / "sample" / "exercises.py"
    exercises.write_text(exercises.read_text().replace(f'"{old}"', f'"{other}"'))
    if old == "sample":
        (tmp_path / "topics" / "sample").rename(tmp_path / "topics" / other)
        (tmp_path / "99_sample.ipynb").rename(tmp_path / f"99_{other}.ipynb")
    assert sentence in discovered(tmp_path, code=1)


@pytest.mark.parametrize(
    ("lab", "sentence"),
    [
        ("sample", "two digits and a word for its topic, as in 20_halo, not 'sample'"),
        ("99_class", "not '99_class'"),
        ("99_Sample", "not '99_Sample'"),
        ("99_other", "99_sample.ipynb has this number"),
        ("99_zero", "04_zero.ipynb has this number or this topic"),
        ("99A_other", "two digits and a word"),
    ],
)
def test_a_new_lab_needs_a_name_that_is_free(tmp_path: Path, lab: str, sentence: str) -> None:
    there = new("99_sample", tmp_path, tmp_path)
    with pytest.raises(ValueError, match=sentence):
        new(lab, tmp_path, tmp_path)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == set(there)


def test_a_new_lab_overwrites_nothing(tmp_path: Path) -> None:
    mine = tmp_path / "solutions" / "99_sample.py"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(ValueError, match="is there already"):
        new("99_sample", tmp_path, tmp_path)
    assert mine.read_text() == "mine" and not (tmp_path / "topics").exists()


def test_outside_of_a_checkout_a_new_lab_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name a folder for labs of your own with --into DIR"):
        new("99_sample", None, tmp_path)


SOLUTION = 'def half(x, group=None):\n    """Half of x."""\n    y = x / 2\n    return y\n'


def test_a_mistake_is_the_solution_with_its_text_replaced_all_at_once() -> None:
    swapped = Mistake("swapped", "values", ("wrong",), {"y = x": "x = y", "return y": "return x", "y": "z"})
    assert swapped.code(SOLUTION).splitlines()[2:] == ["    x = y / 2", "    return x"]


def test_a_mistake_may_be_another_body_under_the_same_head() -> None:
    other = Mistake("other", "values", ("wrong",), body="\n    if x:\n        return x\n    return 0\n    ")
    assert other.code(SOLUTION) == "def half(x, group=None):\n    if x:\n        return x\n    return 0\n"


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (Mistake("gone", "values", ("wrong",), {"x / 3": "x"}), "'x / 3' is not in the solution"),
        (Mistake("none", "values", ("wrong",)), "give either edits or a body"),
        (Mistake("both", "values", ("wrong",), {"x": "y"}, "return x"), "give either edits or a body"),
    ],
)
def test_a_mistake_that_changes_nothing_is_refused(mistake: Mistake, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        mistake.code(SOLUTION)


def test_a_mistake_is_caught_by_its_stage_and_all_its_words() -> None:
    mistake = Mistake("sum", "values", ("not divided", "world size"), {"/ 2": ""})
    assert mistake.missed_by("values", "it was not divided by the world size") is None
    assert mistake.missed_by("values", "it was not divided") == "'world size' is not in the sentence"
    assert mistake.missed_by("", "it was not divided by the world size") == "it should fail at values"


@pytest.mark.parametrize("exercise", discovery.exercises().values(), ids=discovery.exercises())
def test_every_mistake_of_an_exercise_can_be_made_and_is_no_solution(exercise: Exercise) -> None:
    solution = inspect.getsource(answers.solution_of(exercise))
    texts = {inspect.getsource(answers.mistaken(exercise, mistake)) for mistake in exercise.mistakes}
    assert solution not in texts and len(texts) == len(exercise.mistakes)
