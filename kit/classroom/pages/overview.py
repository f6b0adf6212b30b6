"""A class as its pages look at it: rows of students, exercises with their ways to be wrong, and who answered alike."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from kit.classroom.pages import words
from kit.grade.marks import FAILED, NOT_ATTEMPTED, PASSED, UNCHECKED
from kit.grade.words import on_one_line

if TYPE_CHECKING:
    from kit.classroom.marks import Class, Graded, Student, Trouble

OUTCOMES = (PASSED, FAILED, NOT_ATTEMPTED, UNCHECKED)
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?|inf|nan)(?![\w])")
_SEVERAL = re.compile(r"#(?:\s*,\s*#|\s+and\s+#|\s+to\s+#)+,?")
_PLURAL = re.compile(r"(# (?:[a-z]+ )?[a-z]+?)s\b")
_WHICH = re.compile(r"\b(rank|line|chunk|element|layer|stage)s? #")
_CASE = r"\d+ ranks(?:, [\w ]+ = [\d,]+)*"
_OF_A_CASE = re.compile(rf"\A[Oo]n {_CASE}: | \({_CASE}\)\Z")


def at_heart(sentence: str) -> str:
    """A sentence without the inputs on which it was found."""
    return _OF_A_CASE.sub("", sentence)


def without_numbers(sentence: str) -> str:
    """What is left of a sentence where ranks, sizes and values are not looked at: equal for the same mistake."""
    text = _SEVERAL.sub("#", _NUMBER.sub("#", at_heart(on_one_line(sentence))))
    text = re.sub(r"\bare\b", "is", _WHICH.sub(r"\1 #", text))
    return _PLURAL.sub(r"\1", text).casefold()


@dataclass(frozen=True)
class Row:
    """A student."""

    student: Student
    marks: dict[str, Graded]  # by exercise
    troubles: tuple[Trouble, ...]
    page: str  # its path among the pages
    listed: bool  # on the class list

    @property
    def missing(self) -> bool:
        return not self.marks and not self.troubles

    def count(self, outcome: str) -> int:
        return sum(mark.outcome == outcome for mark in self.marks.values())


@dataclass(frozen=True)
class WrongWay:
    """Answers that got the same sentence but for its numbers."""

    number: int  # from 1, the commonest first
    marks: tuple[Graded, ...]

    @property
    def sentence(self) -> str:
        """As most of them got it, for whatever inputs."""
        return Counter(at_heart(mark.sentence) for mark in self.marks).most_common(1)[0][0]

    @property
    def letter(self) -> str:
        """What stands for it in the matrix: 'a'; nothing where it is one student's alone, or one of very many."""
        return chr(ord("a") + self.number - 1) if len(self.marks) > 1 and self.number <= 26 else ""


@dataclass(frozen=True)
class OneExercise:
    """An exercise with the marks of everybody."""

    identity: str
    lab: str
    page: str
    marks: tuple[Graded, ...]

    def count(self, outcome: str) -> int:
        return sum(mark.outcome == outcome for mark in self.marks)

    @property
    def attempted(self) -> int:
        return len(self.marks) - self.count(NOT_ATTEMPTED)

    @property
    def seconds(self) -> float:
        return sum(mark.seconds for mark in self.marks)

    @cached_property
    def wrong(self) -> tuple[WrongWay, ...]:
        """Groups of wrong answers, the largest first."""
        groups: dict[tuple[str, str, str], list[Graded]] = defaultdict(list)
        for mark in self.marks:
            if mark.outcome in (FAILED, UNCHECKED):
                groups[mark.outcome, mark.stage, without_numbers(mark.sentence)].append(mark)
        largest = sorted(groups.values(), key=lambda group: -len(group))
        return tuple(WrongWay(number, tuple(group)) for number, group in enumerate(largest, 1))

    @cached_property
    def way_of(self) -> dict[str, WrongWay]:
        """The group of each student whose answer is wrong."""
        return {mark.student: way for way in self.wrong for mark in way.marks}


class Overview:
    """All that the pages of a class say."""

    def __init__(self, class_: Class) -> None:
        self.class_ = class_
        marks: dict[str, dict[str, Graded]] = defaultdict(dict)
        for mark in class_.graded:
            marks[mark.student][mark.exercise] = mark
        troubles: dict[str, list[Trouble]] = defaultdict(list)
        for trouble in class_.troubles:
            troubles[trouble.student].append(trouble)
        listed = {student.key: student for student in class_.roster}
        keys = list(dict.fromkeys((*listed, *marks, *filter(None, troubles))))
        files = words.file_names(keys)
        self.rows = tuple(
            Row(
                listed.get(key) or _unlisted(key),
                marks.get(key, {}),
                tuple(troubles.get(key, ())),
                f"students/{files[key]}.html",
                key in listed,
            )
            for key in keys
        )
        self._names = {row.student.key: row.student.name for row in self.rows}
        self.exercises = self._exercises(marks.values())
        self.missing = tuple(row for row in self.rows if row.missing)

    def _exercises(self, marks: Iterable[dict[str, Graded]]) -> tuple[OneExercise, ...]:
        """In the order of their labs, and of each hand-in within a lab."""
        found: dict[tuple[str, str], list[Graded]] = defaultdict(list)
        for of_student in marks:
            for mark in of_student.values():
                found[mark.lab, mark.exercise].append(mark)
        files = words.file_names([exercise for _, exercise in found])
        return tuple(
            OneExercise(exercise, lab, f"exercises/{files[exercise]}.html", tuple(each))
            for (lab, exercise), each in sorted(found.items(), key=lambda item: item[0][0])
        )

    @property
    def labs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.lab for each in self.exercises))

    def of_lab(self, lab: str) -> list[OneExercise]:
        return [each for each in self.exercises if each.lab == lab]

    def called(self, marks: Iterable[Graded]) -> list[str]:
        """The names of those whose marks they are."""
        return [self._names[mark.student] for mark in marks]

    def alike(self, lab: str) -> list[tuple[tuple[Row, ...], int]]:
        """Students whose answers to all that they tried in a lab are equal, with how many those are, two at least."""
        groups: dict[tuple[tuple[str, str], ...], list[Row]] = defaultdict(list)
        exercises = [each.identity for each in self.of_lab(lab)]
        for row in self.rows:
            tried = [row.marks[name] for name in exercises if name in row.marks and _is_own(row.marks[name])]
            if len(tried) > 1:
                groups[tuple((mark.exercise, mark.digest) for mark in tried)].append(row)
        return [(tuple(rows), len(answers)) for answers, rows in groups.items() if len(rows) > 1]

    def elsewhere(self) -> list[tuple[str, int]]:
        """Walls other than the class's behind which answers ran, in an earlier part of the run, and how many did."""
        ran = Counter(mark.walls for mark in self.class_.graded if mark.seed is not None and mark.walls)
        del ran[self.class_.walls]
        return ran.most_common()


def equal(marks: Sequence[Graded]) -> list[tuple[Graded, ...]]:
    """Marks whose answers are equal together, the most first."""
    groups: dict[str, list[Graded]] = defaultdict(list)
    for mark in marks:
        groups[mark.digest or f"{mark.student}/{mark.file}"].append(mark)
    return [tuple(group) for group in sorted(groups.values(), key=lambda group: -len(group))]


def _is_own(mark: Graded) -> bool:
    return bool(mark.digest and mark.source) and mark.outcome != NOT_ATTEMPTED


def _unlisted(key: str) -> Student:
    from kit.classroom.marks import Student

    return Student(key, key)
