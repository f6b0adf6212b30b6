"""Exercises and their checks: values, then traffic, then cost.

    exercise                                 what an exercise is: cases, oracle, rules, hints, usual mistakes
    discovery, answers                       which labs there are; their solutions, and the learner's functions
    checker, values, traffic, cost, diagnose one check, and the rules it is made of
    inputs, words                            what exercises share
    verdict, hints, predict                  what a learner reads
    notebooks, run, marks, report            whole notebooks without a browser: `lockstep check`
    record                                   their recordings: `lockstep record`

A check is handed a runner: how a function is run on k ranks. It knows neither clusters nor widgets.
"""

from __future__ import annotations

from kit.grade.exercise import Case, Exercise, Mistake, Run, Runner

# The function `exercise` comes after the module, whose name it takes.
# isort: split
from kit.grade.answers import NotAttempted, exercise
from kit.grade.checker import check, check_without_ranks
from kit.grade.hints import hint, solution
from kit.grade.verdict import Verdict

__all__ = [
    "Case",
    "Exercise",
    "Mistake",
    "NotAttempted",
    "Run",
    "Runner",
    "Verdict",
    "check",
    "check_without_ranks",
    "exercise",
    "hint",
    "solution",
]
