"""What came of one notebook: the verdicts its checks wrote down, and whether that is as expected."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kit.instructor.notebooks import Notebook

PASSED, NOT_ATTEMPTED, FAILED, UNCHECKED = "passed", "not attempted", "failed", "no check ran"


@dataclass(frozen=True)
class Verdict:
    """What one check said. `seconds` is the time it took."""

    exercise: str
    outcome: str  # PASSED, NOT_ATTEMPTED, FAILED or UNCHECKED
    sentence: str
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """What came of one notebook. `trouble` is a sentence when the notebook did not run to its end."""

    notebook: Notebook
    verdicts: tuple[Verdict, ...]
    trouble: str | None
    seconds: float
    solutions: bool  # were the solutions put in place of the learner's answers
    left: int = 0  # processes that outlived the notebook and were ended

    def count(self, outcome: str) -> int:
        return sum(verdict.outcome == outcome for verdict in self.verdicts)

    @property
    def surprises(self) -> tuple[Verdict, ...]:
        """The verdicts that are not as expected.

        With solutions every check must pass; in a shipped lab every one must be 'not attempted'; in a notebook of a
        learner either will do.
        """
        return tuple(verdict for verdict in self.verdicts if verdict.outcome not in self._expected())

    @property
    def as_expected(self) -> bool:
        return self.trouble is None and not self.surprises

    def _expected(self) -> tuple[str, ...]:
        if self.solutions:
            return (PASSED,)
        return (NOT_ATTEMPTED,) if self.notebook.shipped else (PASSED, NOT_ATTEMPTED)


def read_verdicts(notebook: Notebook, side_file: Path, ended: bool = True) -> tuple[Verdict, ...]:
    """The last verdict of each exercise, in the notebook's order; an exercise without one is UNCHECKED.

    ended: the notebook ran to its end, so every check cell was reached. side_file: JSON lines with exercise, outcome,
    sentence and seconds, as `kit.check` appends them.
    """
    written: dict[str, Verdict] = {}
    lines = side_file.read_text(encoding="utf-8").split("\n") if side_file.exists() else []
    for line in lines:
        verdict = _verdict(line)
        if verdict is not None:
            written[verdict.exercise] = verdict
    order = dict.fromkeys((*notebook.exercises, *written))
    why = "the notebook did not check it" if ended else "the notebook stopped before its check had an answer"
    return tuple(written.get(name) or Verdict(name, UNCHECKED, why, 0.0) for name in order)


def no_ranks(side_file: Path) -> str | None:
    """A sentence where the notebook's checks found no ranks to run on; None where they had them."""
    lines = side_file.read_text(encoding="utf-8").split("\n") if side_file.exists() else []
    reasons = [reason for line in lines if (reason := _reason(line))]
    if not reasons:
        return None
    return f"no check could run, because there is no cluster here: {reasons[0].rstrip('.')}"


def _reason(line: str) -> str:
    try:
        return str(json.loads(line).get("no_ranks", ""))
    except (ValueError, AttributeError):
        return ""  # as in `_verdict`


def _verdict(line: str) -> Verdict | None:
    """One line of the side file; None for one that was cut short when its writer was killed."""
    try:
        entry: Mapping[str, object] = json.loads(line)
        outcome = str(entry["outcome"])
        known = outcome if outcome in (PASSED, NOT_ATTEMPTED, FAILED) else FAILED
        return Verdict(str(entry["exercise"]), known, str(entry["sentence"]), float(str(entry["seconds"])))
    except (ValueError, KeyError, TypeError):
        return None
