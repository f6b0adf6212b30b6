"""Exercises and their checks: values, then traffic, then cost.

    exercise                                 what an exercise is: cases, oracle, rules, hints, usual mistakes
    discovery, answers                       which labs there are; their solutions, and the learner's functions
    checker, values, traffic, cost, diagnose one check, and the rules it is made of
    reading                                  what the text of a wrong answer tells
    inputs, words                            what exercises share
    question                                 what a question is answered with, beside its topic
    verdict, hints, predict                  what a learner reads
    notebooks, run, marks, report            whole notebooks without a browser: `lockstep check`
    lab_recordings                           their recordings: `lockstep record`

A check is handed a runner: how a function is run on k ranks. It knows neither clusters nor widgets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit import lazy

if TYPE_CHECKING:  # what a lab's author imports
    from kit.grade.exercise import Case as Case
    from kit.grade.exercise import Exercise as Exercise
    from kit.grade.exercise import Mistake as Mistake
    from kit.grade.exercise import Run as Run
    from kit.grade.question import Answer as Answer
    from kit.grade.verdict import Verdict as Verdict

if not TYPE_CHECKING:
    __getattr__ = lazy.names(__name__)
