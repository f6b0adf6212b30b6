"""Whose a hand-in is: by the class list where there is one, else by the names of files and folders."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from kit.classroom.marks import Student, Trouble
from kit.grade.words import on_one_line

_LAB = re.compile(r"[\s_-]*\d\d[a-z]?_[a-z]+(?:_[a-z]+)*[\s_-]*$", re.IGNORECASE)  # ' 01a_collectives' at the end
_KEYS = ("key", "id", "login", "username", "user", "email", "student")
_NAMES = ("name", "student", "full name")


@dataclass(frozen=True)
class Found:
    """A notebook in the folder of hand-ins. name: its path there, in signs that can be shown."""

    path: Path
    name: str
    student: Student


@dataclass(frozen=True)
class _Row:
    student: Student
    file: str  # "" where the class list names no file


@dataclass(frozen=True)
class Roster:
    """A class list."""

    rows: tuple[_Row, ...]

    @property
    def students(self) -> tuple[Student, ...]:
        return tuple(row.student for row in self.rows)

    @classmethod
    def read(cls, path: Path) -> Roster:
        """A table with the columns `name`, and `key` or `file`. Raises ValueError for one that is no such table."""
        try:
            text = path.read_bytes().decode("utf-8-sig")
        except OSError as problem:
            raise ValueError(f"the class list {path} cannot be read ({problem.strerror})") from problem
        except UnicodeDecodeError as problem:
            raise ValueError(f"the class list {path} is not text in UTF-8: save it as CSV UTF-8") from problem
        head = text.partition("\n")[0]
        mark = max(",;\t", key=head.count)  # some tables of the office have semicolons
        table = list(csv.reader(text.splitlines(), delimiter=mark))
        columns = [on_one_line(cell).casefold() for cell in table[0]] if table else []
        name = next((columns.index(each) for each in _NAMES if each in columns), None)
        file = columns.index("file") if "file" in columns else None
        key = next((columns.index(each) for each in _KEYS if each in columns and columns.index(each) != name), None)
        if name is None or (file is None and key is None):
            raise ValueError(
                f"the class list {path} begins with the columns {', '.join(columns) or 'of nothing'}: give it a first"
                " line with name,key or name,file (key: what a student's files begin with, or the name of their folder)"
            )
        rows = []
        for cells in table[1:]:
            if not any(cell.strip() for cell in cells):
                continue
            has = [*cells, *[""] * (len(columns) - len(cells))]
            of_file = has[file].strip() if file is not None else ""
            own = on_one_line(has[key]) if key is not None else ""
            own = own or on_one_line(PurePath(of_file).stem) or on_one_line(has[name])
            rows.append(_Row(Student(on_one_line(has[name]) or own, own), of_file))
        keys = [row.student.key for row in rows]
        twice = next((one for one in keys if keys.count(one) > 1), None)
        if twice is not None:
            raise ValueError(f"the class list {path} has the key {twice!r} twice: two students cannot share one")
        return cls(tuple(rows))

    def whose(self, path: PurePath) -> Student | None:
        """The student of a file, by its path in the folder of hand-ins; the one with the longest key that fits."""
        for row in self.rows:
            if row.file and row.file in (str(path), path.name):
                return row.student
        fitting = [
            (len(word), row.student)
            for row in self.rows
            for word in (row.student.key, row.student.name)
            if any(_begins(part, word) for part in path.parts)
        ]
        return max(fitting, key=lambda each: each[0])[1] if fitting else None


def find(folder: Path, roster: Roster | None, apart: Sequence[Path] = ()) -> tuple[list[Found], list[Trouble]]:
    """The notebooks of a class with their students, and what lies there that fits nobody.

    apart: files and folders that are no hand-ins, wherever they lie. Raises ValueError where there is no such folder.
    """
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}: name the one with what your class handed in")
    found: list[Found] = []
    troubles: list[Trouble] = []
    for path in _files(folder, [each.absolute() for each in apart]):
        inside = path.relative_to(folder)
        name = on_one_line(str(inside))
        if path.suffix.lower() != ".ipynb":
            troubles.append(Trouble(name, "", "it is not a notebook: its name does not end in .ipynb"))
            continue
        student = _guess(inside) if roster is None else roster.whose(inside)
        if student is None:
            words = "it fits nobody of the class list: let its name begin with a student's key, or name it there"
            troubles.append(Trouble(name, "", words))
        else:
            found.append(Found(path, name, student))
    return found, troubles


def _files(folder: Path, apart: Sequence[Path]) -> Iterator[Path]:
    """All files in it and in its folders, in order; not what editors and archives keep for themselves."""
    for path in sorted(folder.iterdir(), key=_in_order):
        if path.name.startswith(".") or path.name == "__MACOSX" or path.absolute() in apart:
            continue
        if path.is_dir() and not path.is_symlink() and path.suffix.lower() != ".ipynb":
            yield from _files(path, apart)
        else:
            yield path


def _in_order(path: Path) -> list[tuple[int, str]]:
    """'ada-2' before 'ada-10'."""
    parts = re.split(r"(\d+)", path.name)
    return [(int(part), "") if part.isdecimal() and part.isascii() and len(part) < 12 else (0, part) for part in parts]


def _guess(inside: PurePath) -> Student:
    """Without a class list: who has a folder is called like it, another like the file without the lab's name."""
    called = inside.parts[0] if len(inside.parts) > 1 else _LAB.sub("", inside.stem) or inside.stem
    name = on_one_line(called)
    return Student(name, name)


def _begins(part: str, word: str) -> bool:
    """Whether a file or a folder begins with a key, as a word: with 'ada' does 'ada_04', not 'adam'."""
    said, key = _plain(part), _plain(word)
    return bool(key) and said.startswith(key) and not said[len(key) : len(key) + 1].isalnum()


def _plain(text: str) -> str:
    return " ".join(re.split(r"[\s_]+", on_one_line(text).casefold())).strip()
