"""Every file of a folder finds its student, or is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kit.classroom.marks import Student
from kit.classroom.roster import Roster, find

ADA, ADAM, EVE = Student("Ada Lovelace", "ada"), Student("Adam", "adam-1"), Student("Eve", "e.v@x")


def roster(folder: Path, text: str) -> Roster:
    path = folder / "class.csv"
    path.write_text(text, encoding="utf-8")
    return Roster.read(path)


@pytest.mark.parametrize(
    "text",
    [
        "name,key\nAda Lovelace,ada\nAdam,adam-1\nEve,e.v@x\n",
        "\ufeffKey;Name\r\nada;Ada Lovelace\r\nadam-1;Adam\r\ne.v@x;Eve\r\n\r\n",
        'Name\temail\tgroup\n"Ada Lovelace"\tada\t1\nAdam\tadam-1\t\nEve\te.v@x\n',
    ],
    ids=["commas", "semicolons", "tabs"],
)
def test_a_class_list_is_read(tmp_path: Path, text: str) -> None:
    assert roster(tmp_path, text).students == (ADA, ADAM, EVE)


def test_files_find_their_students(tmp_path: Path) -> None:
    of = roster(tmp_path, "name,key,file\nAda Lovelace,ada,\nAdam,adam-1,\nEve,e.v@x,x9.ipynb\n")
    whose = {
        "ada.ipynb": ADA,
        "ADA_04_zero.ipynb": ADA,
        "ada/04_zero.ipynb": ADA,
        "group 1/ada/04_zero.ipynb": ADA,
        "Ada_Lovelace_123_assignsubmission_file/04_zero.ipynb": ADA,
        "adam-1 (2).ipynb": ADAM,
        "x9.ipynb": EVE,
        "e.v@x-04.ipynb": EVE,
    }
    assert {name: of.whose(Path(name)) for name in whose} == whose
    assert of.whose(Path("adamant.ipynb")) is None
    assert of.whose(Path("04_zero.ipynb")) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "give it a first line with name,key"),
        ("name,mark\nAda,1\n", "begins with the columns name, mark"),
        ("name,key\nAda,a\nEve,a\n", "has the key 'a' twice"),
    ],
)
def test_a_table_that_is_no_class_list_says_what_it_should_be(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        roster(tmp_path, text)


def test_a_class_list_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        Roster.read(tmp_path / "none.csv")
    (tmp_path / "class.csv").write_bytes("name,key\nJürgen,j\n".encode("latin-1"))
    with pytest.raises(ValueError, match="save it as CSV UTF-8"):
        Roster.read(tmp_path / "class.csv")


def test_what_lies_in_the_folder(tmp_path: Path) -> None:
    names = ["ada_01a_collectives.ipynb", "eve/01a_collectives.ipynb", "01a_collectives.ipynb", "read me.txt"]
    for name in (*names, ".ipynb_checkpoints/ada.ipynb", "__MACOSX/x", "a-10.ipynb", "a-2.ipynb"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "f.ipynb").mkdir()
    (tmp_path / "b\n\x1b[2Jc.ipynb").touch()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.ipynb")).touch()
    found, troubles = find(tmp_path, None)
    assert [each.student.key for each in found] == [
        "01a_collectives",
        "a-2",
        "a-10",
        "ada",
        "b c",
        "eve",
        "f",
        "\\udcff",
    ]
    assert [(trouble.file, trouble.student) for trouble in troubles] == [("read me.txt", "")]
    of = roster(tmp_path, "name,key\nAda,ada\n")
    (tmp_path / "class.csv").unlink()
    found, troubles = find(tmp_path, of)
    assert [each.name for each in found] == ["ada_01a_collectives.ipynb"]
    assert sum("fits nobody of the class list" in trouble.sentence for trouble in troubles) == 7
