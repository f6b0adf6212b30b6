"""Three hints of growing grade, and the solution beside the learner's own run."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from html import escape

from kit.grade import discovery
from kit.grade.answers import solution_of
from kit.grade.verdict import Verdict, latest, runs_page
from kit.grade.words import html_of

_given: dict[str, int] = {}


@dataclass(frozen=True)
class Hint:
    """One hint: its grade from 1 (a nudge) to 3 (nearly the code), and its words."""

    exercise: str
    grade: int
    words: str

    def __repr__(self) -> str:  # what a terminal, and a notebook without HTML, show
        return str(self)

    def __str__(self) -> str:
        return f"hint {self.grade} of 3: {self.words}{self._after()}"

    def _repr_html_(self) -> str:
        return f'<div class="ls-hint"><b>Hint {self.grade} of 3.</b> {html_of(self.words)}{escape(self._after())}</div>'

    def _after(self) -> str:
        return f" There is no further hint; solution('{self.exercise}') opens the solution." if self.grade == 3 else ""


@dataclass(frozen=True)
class Solution:
    """The solution's text, and the learner's latest checked run beside the target's."""

    exercise: str
    text: str
    verdict: Verdict | None = field(repr=False)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return f"{self.text}\n{self.verdict.side_by_side()}\n" if self.verdict else self.text

    def _repr_html_(self) -> str:
        page = runs_page(self.verdict.runs if self.verdict else ())
        return f'<div class="ls-solution"><pre style="overflow:auto">{escape(self.text)}</pre>{page}</div>'


def hint(identity: str) -> Hint:
    """The next hint of an exercise: call it three times for all three grades; after the third it stays.

    Raises ValueError for an identity no lab has.
    """
    exercise = discovery.find(identity)
    grade = min(_given.get(identity, 0) + 1, 3)
    _given[identity] = grade
    return Hint(identity, grade, exercise.hints[grade - 1])


def solution(identity: str) -> Solution:
    """The solution of an exercise, beside the learner's latest run of `check`.

    Raises ValueError for an identity no lab has.
    """
    return Solution(identity, inspect.getsource(solution_of(discovery.find(identity))), latest(identity))
