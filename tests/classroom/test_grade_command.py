"""`lockstep grade`: a folder of hand-ins becomes marks, also where it is killed, and one of them is shown again."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from kit.classroom.marks import Book, Class, Graded, Student, Trouble
from kit.classroom.tables import as_csv, as_json
from kit.cli import main
from kit.grade import discovery
from tests.classroom.made_class import Made, Makes

COMMAND = (sys.executable, "-m", "kit.cli", "grade")


def a_class(folder: Path) -> list[Made]:
    makes = Makes(discovery.labs()["00_ranks"])
    wrong = list(makes.mistaken())
    made = [makes.perfect(), *wrong[:2], makes.untouched(), next(makes.unreadable())]
    folder.mkdir()
    for one in made:
        one.write(folder)
    names = "".join(f"Student {one.student},{one.student}\n" for one in made)
    (folder / "class.csv").write_text(f"name,key\n{names}Nobody,zz\n")
    return made


def grade(folder: Path, out: str) -> list[str]:
    told = ("handed in", "--roster", "handed in/class.csv", "--out", out, "--ranks", "2", "--seed", "7", "--jobs", "1")
    return [*COMMAND, *told]


def marks(folder: Path) -> set[tuple[str, str, str, str, int | None]]:
    book = Book(folder / "marks.jsonl")
    return {(mark.student, mark.exercise, mark.outcome, mark.sentence, mark.seed) for mark in book}


def test_a_run_that_is_killed_goes_on_to_the_same_marks(tmp_path: Path) -> None:
    made = a_class(tmp_path / "handed in")
    done = subprocess.run(grade(tmp_path, "whole"), cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "Nothing from Nobody." in done.stdout and "it is an empty file" in done.stdout
    whole = marks(tmp_path / "whole")
    assert len(whole) == 3 * (len(made) - 1)

    first = subprocess.Popen(grade(tmp_path, "cut"), cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    next(line for line in first.stdout if " 1 of " in line)
    first.kill()
    first.wait()
    first.stdout.close()
    before = marks(tmp_path / "cut")
    assert before < whole
    second = subprocess.run(grade(tmp_path, "cut"), cwd=tmp_path, capture_output=True, text=True, check=True)
    assert marks(tmp_path / "cut") == whole
    assert f"{len(before)} need no run" in second.stdout

    rows = list(csv.DictReader((tmp_path / "cut" / "marks.csv").open(encoding="utf-8", newline="")))
    assert [row["key"] for row in rows] == [*(one.student for one in made), "zz"]
    assert (rows[0]["who-am-i"], rows[-1]["remarks"]) == ("passed", "nothing was handed in")
    assert "Student s002" in (tmp_path / "cut" / "index.html").read_text()
    assert json.loads((tmp_path / "cut" / "marks.json").read_text())["schema"] == "lockstep-class/1"

    mark = next(mark for mark in Book(tmp_path / "cut" / "marks.jsonl") if mark.outcome == "failed")
    again = subprocess.run(
        [*COMMAND, "--again", mark.student, mark.exercise, "--out", "cut"], cwd=tmp_path, capture_output=True, text=True
    )
    assert again.returncode == 0, again.stdout + again.stderr
    assert mark.sentence in again.stdout and f"with seed {mark.seed}" in again.stdout
    assert "my run (" in again.stdout and "target (" in again.stdout and "def my_share(total):" in again.stdout


WRONG = {
    "no folder": (["nowhere"], "there is no folder"),
    "no hand-ins": ([], "name the folder"),
    "no class list": (["here", "--roster", "none.csv"], "cannot be read"),
    "a file as the folder of marks": (["here", "--out", "here/file"], "marks cannot be written to here/file"),
    "nothing to repeat": (["--again", "ada", "broadcast"], "has no marks"),
}


@pytest.mark.parametrize(("words", "sentence"), WRONG.values(), ids=WRONG)
def test_a_request_that_makes_no_sense_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "file").touch()
    assert main(["grade", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_marks_on_other_terms_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    assert main(["grade", "here", "--ranks", "2"]) == 0
    assert main(["grade", "here"]) == 0
    for more, words in ((["--ranks", "3"], "another number of ranks (2)"), (["--seed", "1"], "another seed")):
        capsys.readouterr()
        assert main(["grade", "here", *more]) == 2
        assert words in capsys.readouterr().err


def graded(**more: str) -> Graded:
    usual = dict.fromkeys(("student", "file", "exercise", "lab", "outcome", "stage", "sentence", "source"), "x")
    own = {**usual, "walls": "", "digest": "", **more}
    return Graded(**own, seed=1, worlds=(2,), ranks=2, seconds=1.0)  # type: ignore[arg-type]


def test_text_of_others_changes_no_row() -> None:
    nasty = 'a\nb,"c\x1b[2J\u202e'
    mark = graded(student="k", sentence=nasty, source="\tx\x00")
    assert (mark.sentence, mark.source) == ('a\nb,"c ', "    x ")
    assert graded(student=nasty).student == 'a b,"c'
    troubles = (Trouble("f", "k", "=1+1"),)
    class_ = Class((Student("=cmd()", "k"), Student("@b", "b")), (mark,), troubles, ("l",), "", (), 1.0)
    head, first, second = csv.reader(as_csv(class_).splitlines())
    assert head == ["name", "key", "x", "remarks"]
    assert first == ["'=cmd()", "k", "x", "f: =1+1"]
    assert second == ["'@b", "b", "", "nothing was handed in"]
    assert json.loads(as_json(class_))["graded"][0]["sentence"] == mark.sentence


def test_a_line_that_was_cut_short_is_no_mark(tmp_path: Path) -> None:
    book = Book(tmp_path / "marks.jsonl")
    assert list(book) == []
    book.add(graded(student="a"))
    whole = book.path.read_bytes()
    for length in range(len(whole)):
        book.path.write_bytes(whole + whole[:length])
        assert [mark.student for mark in book] == ["a"]
    book.add(graded(student="b"))
    assert [mark.student for mark in book] == ["a", "b"]
    book.path.write_bytes(whole + b"\xff\n[]\n{}\nnull\n")
    book.add(graded(student="a", outcome="y"))
    assert [mark.outcome for mark in book] == ["y"]
