"""What came of notebooks: for people a table that grows as they end, then sentences; for machines JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kit.grade.marks import FAILED, NOT_ATTEMPTED, PASSED, UNCHECKED, Mark
from kit.grade.words import on_one_line

if TYPE_CHECKING:
    from kit.grade.notebooks import Notebook


@dataclass(frozen=True)
class Outcome:
    """What came of one notebook. `trouble` is a sentence when the notebook did not run to its end."""

    notebook: Notebook
    marks: tuple[Mark, ...]
    trouble: str | None
    seconds: float
    solutions: bool  # were the solutions put in place of the learner's answers
    left: int = 0  # processes that outlived the notebook and were ended

    def count(self, outcome: str) -> int:
        return sum(mark.outcome == outcome for mark in self.marks)

    @property
    def surprises(self) -> tuple[Mark, ...]:
        """The marks that are not as expected.

        With solutions every check must pass; in a shipped lab every one must be 'not attempted'; in a notebook of a
        learner either will do.
        """
        return tuple(mark for mark in self.marks if mark.outcome not in self._expected())

    @property
    def as_expected(self) -> bool:
        return self.trouble is None and not self.surprises

    def _expected(self) -> tuple[str, ...]:
        if self.solutions:
            return (PASSED,)
        return (NOT_ATTEMPTED,) if self.notebook.shipped else (PASSED, NOT_ATTEMPTED)


_COLUMNS = (PASSED, NOT_ATTEMPTED, FAILED, UNCHECKED)


class Table:
    """Lines of one table, made one by one so that each can be printed when its lab ends."""

    def __init__(self, notebooks: Sequence[Notebook]) -> None:
        self._width = max([len("lab"), *(len(notebook.name) for notebook in notebooks)])

    def head(self) -> str:
        return f"{'lab':<{self._width}}  {'  '.join(_COLUMNS)}     time"

    def row(self, outcome: Outcome) -> str:
        cells = "  ".join(f"{outcome.count(column):>{len(column)}}" for column in _COLUMNS)
        remark = "" if outcome.as_expected else "  not as expected"
        return f"{outcome.notebook.name:<{self._width}}  {cells}  {outcome.seconds:>5.0f} s{remark}"


def sentences(outcomes: Sequence[Outcome]) -> list[str]:
    """What a person should know beyond the table, and last whether all is as expected."""
    lines = []
    for outcome in outcomes:
        name = outcome.notebook.name
        if outcome.trouble:
            lines.append(f"{name}: {outcome.trouble}.")
        # after trouble the cells below it did not run: that their checks are missing says nothing new
        shown = [mark for mark in outcome.surprises if not (outcome.trouble and mark.outcome == UNCHECKED)]
        lines += [f"{name}, {mark.exercise}: {mark.outcome}: {_indented(mark.sentence)}" for mark in shown]
        if outcome.left:
            lines.append(f"{name}: {outcome.left} processes outlived the notebook and were ended.")
    wrong = sum(not outcome.as_expected for outcome in outcomes)
    total = f"{len(outcomes)} notebook{'s' if len(outcomes) != 1 else ''}"
    return [*lines, f"{wrong} of {total} not as expected." if wrong else f"{total}, all as expected."]


def _indented(sentence: str) -> str:
    """Its further lines cannot be taken for lines of ours."""
    return sentence.replace("\n", "\n    ")


def as_json(outcomes: Sequence[Outcome], version: str, ranks: int | None, asked: int | None = None) -> str:
    """The same as JSON: a list of labs with their counts, times in seconds, and what was said of every exercise, where
    (stage), and how it is tried again (seed: see `kit.check`; worlds: numbers of ranks on which the values were right).

    asked: how many notebooks there are to run (None: these). All is as expected only when all of them were.
    """
    asked = len(outcomes) if asked is None else asked
    labs = [
        {
            "lab": outcome.notebook.name,
            "path": on_one_line(str(outcome.notebook.path)),
            "as_expected": outcome.as_expected,
            "passed": outcome.count(PASSED),
            "not_attempted": outcome.count(NOT_ATTEMPTED),
            "failed": outcome.count(FAILED),
            "no_check_ran": outcome.count(UNCHECKED),
            "trouble": outcome.trouble,
            "processes_left": outcome.left,
            "seconds": round(outcome.seconds, 2),
            "exercises": [
                {
                    "exercise": mark.exercise,
                    "outcome": mark.outcome,
                    "sentence": mark.sentence,
                    "seconds": round(mark.seconds, 2),
                    "stage": mark.stage,
                    "worlds": list(mark.worlds),
                    "seed": mark.seed,
                }
                for mark in outcome.marks
            ],
        }
        for outcome in outcomes
    ]
    page = {
        "lockstep": version,
        "ranks": ranks,
        "solutions": bool(outcomes and outcomes[0].solutions),
        "as_expected": asked == len(outcomes) and all(outcome.as_expected for outcome in outcomes),
        "notebooks": asked,
        "labs": labs,
    }
    return json.dumps(page, indent=2, ensure_ascii=False) + "\n"
