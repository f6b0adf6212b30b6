"""Marks for other programs: a table with a row for each student, and JSON with all that is known."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from kit.classroom.files import put

if TYPE_CHECKING:
    from kit.classroom.marks import Class

SCHEMA = "lockstep-class/1"
LONGEST = 4000  # letters of a cell: spreadsheets take 32,767 of them
_FORMULAS = ("=", "+", "-", "@")  # what a spreadsheet would compute


def write(class_: Class, folder: Path) -> None:
    """`marks.csv` and `marks.json`, each whole or not at all. Raises OSError where they cannot be written."""
    for name, text in (("marks.csv", as_csv(class_)), ("marks.json", as_json(class_))):
        put(folder / name, text)


def as_csv(class_: Class) -> str:
    """A row for each student, a column for each exercise; what no spreadsheet takes for a formula."""
    exercises = list(dict.fromkeys(mark.exercise for mark in class_.graded))
    outcomes = {(mark.student, mark.exercise): mark.outcome for mark in class_.graded}
    troubles: dict[str, list[str]] = {}
    for trouble in class_.troubles:
        troubles.setdefault(trouble.student, []).append(f"{trouble.file}: {trouble.sentence}")
    has = {student for student, _ in outcomes} | troubles.keys()
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\r\n")
    table.writerow([*("name", "key"), *exercises, "remarks"])
    for student in class_.roster:
        cells = [outcomes.get((student.key, exercise), "") for exercise in exercises]
        said = "; ".join(troubles.get(student.key, [] if student.key in has else ["nothing was handed in"]))
        table.writerow(_text(cell) for cell in (student.name, student.key, *cells, said))
    return text.getvalue()


def as_json(class_: Class) -> str:
    """All fields of `kit.classroom.marks.Class`, under a name for their order: `lockstep-class/1`."""
    return json.dumps({"schema": SCHEMA, **asdict(class_)}, indent=1, ensure_ascii=False) + "\n"


def _text(cell: str) -> str:
    kept = cell if len(cell) <= LONGEST else f"{cell[: LONGEST - 1]}…"
    return f"'{kept}" if kept.lstrip().startswith(_FORMULAS) else kept
