"""What came of a class: one mark for each exercise of each student, kept line by line so that a killed run goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from kit.grade.words import on_one_line, shown

LONGEST = 4000  # characters of a sentence: what an answer raises is text of its own


@dataclass(frozen=True)
class Student:
    """Somebody of the class. key: what the names of their files begin with, or the name of their folder."""

    name: str
    key: str

    def __post_init__(self) -> None:
        _on_one_line(self, "name", "key")


@dataclass(frozen=True)
class Trouble:
    """Something among the hand-ins that could not be used, or not as it stands. student: a key, "" where unknown."""

    file: str
    student: str
    sentence: str

    def __post_init__(self) -> None:
        _on_one_line(self, "file", "student", "sentence")


@dataclass(frozen=True)
class Graded:
    """The mark of one exercise of one student."""

    student: str  # a key
    file: str  # in the folder of hand-ins
    exercise: str
    lab: str
    outcome: str  # PASSED, FAILED, NOT_ATTEMPTED or UNCHECKED of `kit.grade.marks`
    stage: str  # where it failed: 'values', 'traffic' or 'cost'; "" before any of them
    sentence: str
    seed: int | None  # of the inputs, the same for the whole class
    worlds: tuple[int, ...]  # numbers of ranks on which the values were right
    ranks: int  # the most that were asked for
    seconds: float  # on the ranks; 0 where an equal answer had been run
    source: str  # the text that ran: the lines a sentence names are its lines
    walls: str  # what it ran behind
    digest: str  # of the answer without comments and layout: equal answers have equal ones

    def __post_init__(self) -> None:
        _on_one_line(self, "student", "file", "exercise", "lab", "outcome", "stage", "walls", "digest")
        object.__setattr__(self, "source", shown(self.source.expandtabs(4)))
        object.__setattr__(self, "sentence", as_kept(self.sentence))


def _on_one_line(record: object, *names: str) -> None:
    """Text of others is a value here: no control character of it gets into a page or a terminal."""
    for name in names:
        object.__setattr__(record, name, on_one_line(getattr(record, name)))


def as_kept(sentence: str) -> str:
    """A sentence as a mark has it."""
    return shown(sentence.expandtabs(4))[:LONGEST]


@dataclass(frozen=True)
class Class:
    """All that pages are drawn from. A student of the roster with neither a mark nor a trouble is missing."""

    roster: tuple[Student, ...]  # those of the class list; without one, those who handed something in
    graded: tuple[Graded, ...]
    troubles: tuple[Trouble, ...]
    labs: tuple[str, ...]  # whose exercises were graded: '01a_collectives'
    walls: str  # 'bubblewrap'
    not_held: tuple[str, ...]  # sentences: what these walls do not keep out
    seconds: float  # by the clock, for the run that ended last
    each: bool = False  # equal answers were run one by one, not once for all


class Book:
    """The marks of one run in a file of JSON lines, each written whole and at once, and read back after an end.

    One writer at a time; a line that was cut short by the end of its writer is not read, and graded anew.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[Graded]:
        """The latest mark of each student's exercise, in the order in which they were first written."""
        lines = self.path.read_bytes().split(b"\n") if self.path.exists() else []
        latest: dict[tuple[str, str, str], Graded] = {}
        for mark in filter(None, map(_read, lines)):
            latest[mark.student, mark.file, mark.exercise] = mark
        return iter(latest.values())

    def add(self, mark: Graded) -> None:
        """Raises OSError where it cannot be written."""
        line = json.dumps(asdict(mark), ensure_ascii=False).encode() + b"\n"
        with self.path.open("ab+") as file:
            if file.seek(0, os.SEEK_END) and not self._ends_whole():
                line = b"\n" + line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def _ends_whole(self) -> bool:
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"


def _read(line: bytes) -> Graded | None:
    """A line as a mark; None for one that was cut short, or that another version wrote."""
    try:
        entry: dict[str, Any] = json.loads(line)
        known = {field.name for field in fields(Graded)}
        if set(entry) != known:
            return None
        return Graded(**{**entry, "worlds": tuple(entry["worlds"])})
    except (ValueError, TypeError, AttributeError):
        return None
