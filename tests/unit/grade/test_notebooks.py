"""Which notebooks a request names."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit import resources
from kit.grade.notebooks import exercises_in, find
from kit.grade.run import Settings, run
from tests.unit.grade.notebooks import write


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A learner's folder with a copy of two labs."""
    for name in ("00_ranks", "01_collectives"):
        write(tmp_path / "labs" / f"{name}.ipynb", "1")
    return tmp_path


@pytest.mark.parametrize("word", ["1", "01", "collectives", "01_collectives", "labs/01_collectives.ipynb"])
def test_a_lab_has_several_names(copy: Path, word: str) -> None:
    assert [notebook.path for notebook in find([word], copy)] == [copy / "labs" / "01_collectives.ipynb"]


def test_a_lab_of_several_notebooks_means_all_of_them_and_a_letter_means_one(tmp_path: Path) -> None:
    first, second = (write(tmp_path / "labs" / f"05{part}_tensor.ipynb", "1") for part in "ab")
    write(tmp_path / "labs" / "00_ranks.ipynb", "1")
    for word in ("5", "05", "tensor"):
        assert [notebook.path for notebook in find([word], tmp_path)] == [first, second]
    for word in ("5b", "05b", "05b_tensor", "labs/05b_tensor.ipynb"):
        assert [notebook.path for notebook in find([word], tmp_path)] == [second]


def test_no_name_means_all_labs(copy: Path) -> None:
    assert [notebook.name for notebook in find([], copy)] == ["00_ranks", "01_collectives"]


def test_each_notebook_comes_once_in_the_order_asked_for(copy: Path) -> None:
    assert [notebook.name for notebook in find(["01", "ranks", "collectives"], copy)] == ["01_collectives", "00_ranks"]


def test_copies_are_not_shipped_and_the_shipped_ones_are(copy: Path, tmp_path: Path) -> None:
    assert not any(notebook.shipped for notebook in find([], copy))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shipped = find([], elsewhere)
    assert all(notebook.shipped for notebook in shipped)
    assert {notebook.path.parent for notebook in shipped} == {resources.labs().resolve()}


def test_a_folder_means_its_notebooks(copy: Path) -> None:
    for name in ("ada", "bob"):
        write(copy / "handed-in" / f"{name}.ipynb", "1")
    assert [notebook.name for notebook in find(["handed-in"], copy)] == ["ada", "bob"]


def test_notebooks_of_one_name_are_told_apart(copy: Path) -> None:
    for name in ("ada", "bob"):
        write(copy / name / "01_collectives.ipynb", "1")
    found = find(["ada/01_collectives.ipynb", "bob/01_collectives.ipynb", "00"], copy)
    assert [notebook.name for notebook in found] == ["ada/01_collectives", "bob/01_collectives", "00_ranks"]


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("99", "There is no lab '99' in .*: it has 00 ranks, 01 collectives"),
        ("gone.ipynb", "There is no notebook gone.ipynb here"),
        ("notes.txt", "does not end in .ipynb"),
        ("empty", "There is no notebook in the folder empty"),
        ("torn.ipynb", "is not a notebook that can be read"),
        ("list.ipynb", "is not a notebook that can be read"),
    ],
)
def test_nonsense_is_answered_with_what_there_is(copy: Path, word: str, sentence: str) -> None:
    (copy / "empty").mkdir()
    (copy / "notes.txt").write_text("")
    (copy / "torn.ipynb").write_text("{")
    (copy / "list.ipynb").write_text("[]")
    with pytest.raises(ValueError, match=sentence):
        find([word], copy)


def test_a_file_that_is_no_notebook_does_not_keep_the_others_from_being_run(copy: Path) -> None:
    (copy / "torn.ipynb").write_text("{")
    torn, good = find(["torn.ipynb", "00"], copy)
    assert good.unreadable is None
    assert "torn.ipynb is not a notebook that can be read" in (torn.unreadable or "")
    outcome = run(torn, Settings(), copy / "never-made")
    assert not outcome.as_expected and outcome.trouble == torn.unreadable
    assert not (copy / "never-made").exists()


def test_exercises_are_read_from_code_cells(tmp_path: Path) -> None:
    stub = '@exercise("ring")\ndef ring(x):\n    raise NotAttempted\n'
    other = "@kit.exercise('tree', hints=3)\ndef tree(x):\n    return x\n"
    notebook = write(tmp_path / "x.ipynb", stub, other, "# @exercise('no')", "print('@exercise(\"no\")')")
    assert exercises_in(notebook) == ("ring", "tree")


def test_what_was_taken_out_of_a_copy_of_a_lab_is_still_expected(tmp_path: Path) -> None:
    """By the copy's name where nothing else is left, by an exercise where it was renamed."""
    lab = resources.labs() / "01a_collectives.ipynb"
    first, *others = exercises_in(lab)
    write(tmp_path / "01a_collectives (2).ipynb")
    write(tmp_path / "final.ipynb", f'@exercise("{first}")\ndef f(x):\n    return x\n')
    write(tmp_path / "mine.ipynb", '@exercise("mine")\ndef f(x):\n    return x\n')
    empty, renamed, own = find(["01a_collectives (2).ipynb", "final.ipynb", "mine.ipynb"], tmp_path)
    assert empty.exercises == renamed.exercises == (first, *others) and others
    assert own.exercises == ("mine",)


def test_a_folder_means_those_in_its_folders_but_not_what_editors_keep(copy: Path) -> None:
    write(copy / "in" / "ada" / "x.ipynb", "1")
    write(copy / "in" / "y.ipynb", "1")
    write(copy / "in" / "ada" / ".ipynb_checkpoints" / "x-checkpoint.ipynb", "1")
    assert [notebook.name for notebook in find(["in"], copy)] == ["x", "y"]


def test_an_empty_file_is_called_so(copy: Path) -> None:
    (copy / "empty.ipynb").touch()
    with pytest.raises(ValueError, match="is an empty file"):
        find(["empty.ipynb"], copy)
