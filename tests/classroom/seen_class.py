"""A made class as pages show it: seventy students of one lab, with the usual mistakes, and none of it run."""

from __future__ import annotations

import hashlib
import inspect
from dataclasses import replace
from random import Random

from kit.classroom.handins import answers_in
from kit.classroom.marks import Class, Graded, Student, Trouble
from kit.grade import answers, discovery
from kit.grade.exercise import Exercise
from kit.grade.marks import FAILED, NOT_ATTEMPTED, PASSED, UNCHECKED

LAB = "00_ranks"
FIRST = (
    "Ada", "Grace", "Edsger", "Barbara", "Leslie", "Frances", "Tony", "Katherine", "Alan", "Radia", "Donald", "Mary",
    "Niklaus", "Karen",
)  # fmt: skip
LAST = ("Abbott", "Brandt", "Castillo", "Demir", "Eriksen")
NAMES = tuple(f"{first} {last}" for last in LAST for first in FIRST)
COMMONEST = {"who-am-i": 19, "rank-zero-speaks": 9, "first-rescue": 14}  # how many made the first mistake of each


def mark(student: str, exercise: Exercise, outcome: str, source: str, sentence: str = "", stage: str = "") -> Graded:
    ran = outcome in (PASSED, FAILED)
    digest = hashlib.sha256(source.encode("utf-8", "backslashreplace")).hexdigest()
    seed, worlds = (7 if ran else None), ((2, 3, 4) if outcome == PASSED else ())
    seconds = 1.25 if ran else 0.0
    file = f"{student}.ipynb"
    return Graded(
        student, file, exercise.id, exercise.lab, outcome, stage, sentence, seed, worlds, 4, seconds, source,
        "bubblewrap" if ran else "", digest,
    )  # fmt: skip


def seventy() -> Class:
    """Sixty-six hand-ins that can be judged, two that cannot, two missing students."""
    lab = discovery.labs()[LAB]
    stubs = {answer.exercise: answer.source for answer in answers_in(lab.notebook, lab)}
    keys = [f"s{number:03}" for number in range(70)]
    random, marks = Random(3), []
    for exercise in lab.exercises:
        order = random.sample(keys[:66], 66)
        for place, key in enumerate(order):
            marks.append(_one(key, exercise, place, stubs[exercise.id]))
    marks.sort(key=lambda each: each.student)
    troubles = (
        Trouble("s066.ipynb", "s066", "it is an empty file"),
        Trouble("s067.ipynb", "s067", "it is not text in UTF-8, as notebooks are"),
        Trouble("notes.txt", "", "it is not a notebook: its name does not end in .ipynb"),
    )
    roster = tuple(Student(name, key) for name, key in zip(NAMES, keys, strict=True))
    return Class(roster, tuple(marks), troubles, (LAB,), "bubblewrap", (), 312.0)


def _one(key: str, exercise: Exercise, place: int, stub: str) -> Graded:
    """The same for everybody in one place: many made the first mistake, some each of the next, and so on."""
    commonest, right = COMMONEST[exercise.id], inspect.getsource(answers.solution_of(exercise))
    if place < commonest:
        mistake = exercise.mistakes[0]
    elif place < commonest + 6:
        mistake = exercise.mistakes[1 + (place - commonest) // 2]
    elif place < commonest + 11:
        return mark(key, exercise, NOT_ATTEMPTED, stub)
    elif place < commonest + 12:
        return mark(key, exercise, UNCHECKED, "", f'the notebook has no function marked @exercise("{exercise.id}")')
    else:
        return mark(key, exercise, PASSED, f"{right}    # {place % 30}\n", exercise.praise)
    text = mistake.code(right).replace("total", ("total", "total", "items")[place % 3])
    sentence = f"rank {place % 4}, from line {5 + place % 2}: {': '.join(mistake.says)}"
    return mark(key, exercise, FAILED, text, sentence, mistake.stage)


def of_eight_exercises() -> Class:
    """The same students with a lab as wide as they come."""
    class_ = seventy()
    marks = [
        replace(mark, exercise=f"exercise-{letter}-of-a-long-name")
        for mark in class_.graded
        for letter in "abcdefgh"
        if mark.exercise == "who-am-i"
    ]
    return replace(class_, graded=tuple(marks))
