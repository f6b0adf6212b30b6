"""The outcome of a run for people (a table that grows as labs end, then sentences) and for machines (JSON)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from kit.instructor.notebooks import Notebook
from kit.instructor.outcome import FAILED, NOT_ATTEMPTED, PASSED, UNCHECKED, Outcome

_COLUMNS = (PASSED, NOT_ATTEMPTED, FAILED)


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
        shown = [verdict for verdict in outcome.surprises if not (outcome.trouble and verdict.outcome == UNCHECKED)]
        lines += [f"{name}, {verdict.exercise}: {verdict.outcome}: {verdict.sentence}" for verdict in shown]
        if outcome.left:
            lines.append(f"{name}: {outcome.left} processes outlived the notebook and were ended.")
    wrong = sum(not outcome.as_expected for outcome in outcomes)
    total = f"{len(outcomes)} notebook{'s' if len(outcomes) != 1 else ''}"
    return [*lines, f"{wrong} of {total} not as expected." if wrong else f"{total}, all as expected."]


def as_json(outcomes: Sequence[Outcome], version: str, ranks: int | None, asked: int | None = None) -> str:
    """The same as JSON: a list of labs with their counts, times in seconds, and the verdict of every exercise.

    asked: how many notebooks there are to run (None: these). All is as expected only when all of them were.
    """
    asked = len(outcomes) if asked is None else asked
    labs = [
        {
            "lab": outcome.notebook.name,
            "path": str(outcome.notebook.path),
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
                    "exercise": verdict.exercise,
                    "outcome": verdict.outcome,
                    "sentence": verdict.sentence,
                    "seconds": round(verdict.seconds, 2),
                }
                for verdict in outcome.verdicts
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
