"""A made class: hand-ins of every kind for one lab, each with the marks it must get."""

from __future__ import annotations

import inspect
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kit.classroom.grading import Terms
from kit.classroom.handins import cells_of
from kit.classroom.marks import Graded
from kit.grade import answers, discovery
from kit.grade.exercise import Exercise
from kit.grade.marks import FAILED, NOT_ATTEMPTED, PASSED, UNCHECKED
from tests.classroom.notebooks import notebook

Cells = list[str]


class AtTwenty(Terms):
    """With the inputs for which usual mistakes get their own sentences."""

    def seed_of(self, exercise: str) -> int:
        return 20


@dataclass(frozen=True)
class Expected:
    """A mark. says: words that its sentence has."""

    outcome: str
    stage: str = ""
    says: tuple[str, ...] = ()


@dataclass(frozen=True)
class Made:
    """One hand-in. data: what the file holds. marks: by exercise; none for a file that cannot be read."""

    student: str
    kind: str
    data: bytes
    marks: Mapping[str, Expected] = field(default_factory=dict)
    trouble: str = ""  # words of the sentence about the file

    def write(self, folder: Path) -> None:
        (folder / f"{self.student}.ipynb").write_bytes(self.data)


class Makes:
    """Hand-ins of a lab, made of the notebook as shipped."""

    def __init__(self, lab: discovery.Lab) -> None:
        self.lab = lab
        self.cells = [_above(lab), *cells_of(lab.notebook)]
        self.numbers = (f"s{number:03}" for number in itertools.count(1))

    def with_answers(self, texts: Mapping[str, str]) -> Cells:
        """The notebook with these functions in place of stubs: by exercise."""
        cells = [*self.cells]
        for exercise in self.lab.exercises:
            if exercise.id not in texts:
                continue
            number = self.cell_of(exercise)
            head = cells[number].partition("@exercise(")[0]
            mark = f'@exercise("{exercise.id}")\n'
            text = re.sub(rf"^(?=(async )?def {exercise.function}\b)", mark, texts[exercise.id], flags=re.MULTILINE)
            cells[number] = f"{head}{text}"
        return cells

    def cell_of(self, exercise: Exercise) -> int:
        return next(number for number, cell in enumerate(self.cells) if f'@exercise("{exercise.id}")' in cell)

    def made(self, kind: str, cells: Cells, marks: Mapping[str, Expected], trouble: str = "") -> Made:
        return Made(next(self.numbers), kind, notebook(*cells).encode(), marks, trouble)

    def expected(self, **changed: Expected) -> dict[str, Expected]:
        """All untouched, but for these."""
        own = {exercise.id: Expected(NOT_ATTEMPTED) for exercise in self.lab.exercises}
        return own | {name.replace("_", "-"): mark for name, mark in changed.items()}

    # ------------------------------------------------------------------------------------------------- kinds

    def perfect(self, comment: str = "") -> Made:
        texts = {exercise.id: f"{_solution(exercise)}{comment}" for exercise in self.lab.exercises}
        marks = {exercise.id: Expected(PASSED) for exercise in self.lab.exercises}
        return self.made("perfect", self.with_answers(texts), marks)

    def untouched(self) -> Made:
        return self.made("untouched", self.cells, self.expected())

    def partial(self) -> Made:
        first, *_ = self.lab.exercises
        return self.made(
            "partial", self.with_answers({first.id: _solution(first)}), self.expected(**{first.id: Expected(PASSED)})
        )

    def mistaken(self) -> Iterator[Made]:
        """Every usual mistake of the lab."""
        for exercise in self.lab.exercises:
            for mistake in exercise.mistakes:
                text = mistake.code(_solution(exercise))
                cells = self.with_answers({exercise.id: text})
                mark = Expected(FAILED, mistake.stage, mistake.says)
                yield self.made(f"{exercise.id}: {mistake.name}", cells, self.expected(**{exercise.id: mark}))

    def broken(self) -> Iterator[Made]:
        """In an exercise, with a right answer to the others: nothing of it may cost another its mark."""
        for kind, (edit, mark) in BROKEN.items():
            for exercise in self.lab.exercises[:1]:
                others = {each.id: _solution(each) for each in self.lab.exercises[1:]}
                text = edit(_solution(exercise))
                marks = {each: Expected(PASSED) for each in others} | {exercise.id: mark}
                trouble = "left out" if "parse" in kind else ""
                yield self.made(kind, self.with_answers({exercise.id: text, **others}), marks, trouble)

    def around(self) -> Iterator[Made]:
        """A right answer, in a notebook in which other cells do what cells do."""
        solved = {exercise.id: _solution(exercise) for exercise in self.lab.exercises}
        right = {exercise.id: Expected(PASSED) for exercise in self.lab.exercises}
        for kind, cell in AROUND.items():
            trouble = "left out" if "parse" in kind else ""
            yield self.made(kind, [cell, *self.with_answers(solved), cell], right, trouble)
        first, *rest = self.lab.exercises
        without = [cell for cell in self.with_answers(solved) if f'@exercise("{first.id}")' not in cell]
        gone = Expected(UNCHECKED, "", ("no function marked",))
        yield self.made("an exercise taken out", without, right | {first.id: gone})
        bare = [_above(self.lab), *(cell for cell in self.with_answers(solved) if "@exercise" in cell)]
        yield self.made("the answers alone", bare, right)
        old = {"nbformat": 3, "worksheets": [{"cells": [_old(cell) for cell in self.with_answers(solved)]}]}
        yield Made(next(self.numbers), "an older format", json.dumps(old).encode(), right)

    def unreadable(self) -> Iterator[Made]:
        text = notebook(*self.cells)
        for data, words in (
            (b"", "an empty file"),
            (text[: len(text) // 2].encode(), "no JSON"),
            (text.encode("utf-16"), "not text in UTF-8"),
            (b"[" * 100_000, "nested too deeply"),
            (b"PK\x03\x04" + bytes(100), "no JSON"),
            (notebook("print(1)").encode(), "no exercise of any lab"),
        ):
            yield Made(next(self.numbers), words, data, {}, words)


def seventy(lab: discovery.Lab) -> list[Made]:
    """Seventy hand-ins; as many as there are kinds, then of those that are commonest."""
    makes = Makes(lab)
    made = [
        makes.perfect(),
        makes.untouched(),
        makes.partial(),
        *makes.mistaken(),
        *makes.broken(),
        *makes.around(),
        *makes.unreadable(),
    ]
    while len(made) < 70:
        made.append((makes.perfect, makes.partial, makes.untouched)[len(made) % 3]())
    return made


def as_expected(made: Sequence[Made], marks: Mapping[tuple[str, str], Graded]) -> Iterator[str]:
    """What is not as it should be."""
    for one in made:
        for exercise, expected in one.marks.items():
            mark = marks[one.student, exercise]
            if (mark.outcome, mark.stage) != (expected.outcome, expected.stage):
                yield f"{one.kind}, {exercise}: {mark.outcome} at {mark.stage!r}: {mark.sentence}"
            yield from (
                f"{one.kind}, {exercise}: {words!r} is not in {mark.sentence!r}"
                for words in expected.says
                if words not in mark.sentence
            )


def _above(lab: discovery.Lab) -> str:
    """What stands above the functions of the solutions: imports of somebody who solved it."""
    return lab.solutions.read_text(encoding="utf-8").partition("\ndef ")[0]


def _solution(exercise: Exercise) -> str:
    return inspect.getsource(answers.solution_of(exercise))


def _old(cell: str) -> dict[str, object]:
    return {"cell_type": "code", "input": cell.splitlines(keepends=True), "outputs": []}


def _body(statement: str) -> Callable[[str], str]:
    """The function with another first statement."""
    return lambda text: re.sub(r"\A(def .*?:\n)", lambda found: f"{found[0]}    {statement}\n", text, flags=re.DOTALL)


_DIES = ("rank 0 died",)
BROKEN: dict[str, tuple[Callable[[str], str], Expected]] = {
    "it raises": (_body("1 / 0"), Expected(FAILED, "values", ("ZeroDivisionError",))),
    "it does not parse": (lambda text: text.replace(":", "", 1), Expected(FAILED, "", ("does not parse",))),
    "it does not compile": (_body("continue"), Expected(FAILED, "", ("does not compile",))),
    "it is async": (lambda text: f"async {text}", Expected(FAILED, "", ("async function",))),
    "it is a generator": (_body("yield"), Expected(FAILED, "", ("generator",))),
    "it names what is not there": (_body("no_such_name"), Expected(FAILED, "values", ("NameError",))),
    "it calls itself for ever": (_body("(lambda f: f(f))(lambda f: f(f))"), Expected(FAILED, "values", ("Recursion",))),
    "it returns nothing": (_body("return"), Expected(FAILED, "values")),
}
LOOPS: dict[str, tuple[Callable[[str], str], Expected]] = {  # these take the whole limit, or a rank
    "it loops": (_body("while True: pass"), Expected(FAILED, "values", ("still running",))),
    "it ends its process": (_body("import os; os._exit(0)"), Expected(FAILED, "values", ("died",))),
}
AROUND = {
    "a cell that raises": "1 / 0",
    "a cell that loops": "while True:\n    pass",
    "a cell that ends the kernel": "import os\nos._exit(0)",
    "a cell that does not parse": "def (",
    "a cell with magics": "!rm -rf ~\n%load_ext no_such_extension\n?torch",
    "a cell in another language": "%%bash\nkill -9 $PPID",
    "a cell that forges marks": "import os\nopen(os.environ['LOCKSTEP_VERDICTS'], 'ab').write(b'\\xff')",
}
