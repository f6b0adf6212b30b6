"""`check(function)`: values, then traffic, then cost; the first sentence that is not fulfilled is the verdict."""

from __future__ import annotations

import functools
import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from random import Random
from typing import TYPE_CHECKING, Any

from kit.grade import marks, values
from kit.grade.answers import exercise_of, solution_is_here, solution_of
from kit.grade.exercise import Case, Exercise, Rule, Run, Runner, Stage
from kit.grade.verdict import Verdict, remember
from kit.grade.words import joined

if TYPE_CHECKING:
    from kit.trace.trace import Trace

_UNATTEMPTED = "kit.grade: not attempted"


def check(function: Callable[..., Any], runner: Runner, ranks: int = 4, seed: int | None = None) -> Verdict:
    """Check a learner's answer on real ranks.

    function: marked with `@exercise`. runner: how to run it on k ranks (see `Runner`). ranks: the largest world;
    every world from 2 up to it is tried. seed: repeats the inputs of an earlier check; drawn fresh when left out.

    Raises ValueError for a function that is no exercise, or with fewer than 2 ranks.
    """
    exercise = exercise_of(function)
    if ranks < 2:
        raise ValueError(
            f"a check needs at least 2 ranks, this cluster has {ranks}: start one with kit.cluster(ranks=4)"
        )
    begun = time.monotonic()
    judge = _Judge(exercise, function, runner, ranks, secrets.randbelow(1_000_000) if seed is None else seed)
    verdict = judge.verdict()
    _leave_mark(verdict, exercise, time.monotonic() - begun)
    if not solution_is_here(exercise):
        return remember(verdict)
    try:
        target = attempt(solution_of(exercise), judge.shown, runner).trace
    except Trouble as trouble:  # the verdict stands without its picture, and says why there is none
        return remember(replace(verdict, note=f"The target could not be run beside it: {trouble}"))
    return remember(replace(verdict, target=target))


def check_without_ranks(function: Callable[..., Any], why: str) -> Verdict:
    """The verdict where there are no ranks to run on. Raises ValueError for a function that is no exercise."""
    exercise = exercise_of(function)
    note = f"A check needs ranks, and there is no cluster here: {why}"
    verdict = Verdict(exercise.id, "not attempted", note=note, no_ranks=why)
    _leave_mark(verdict, exercise, 0.0)
    return remember(verdict)


def _leave_mark(verdict: Verdict, exercise: Exercise, seconds: float) -> None:
    marks.leave(
        marks.Mark(
            exercise.id,
            verdict.status,
            verdict.sentence,
            round(seconds, 3),
            verdict.stage,
            exercise.lab,
            verdict.no_ranks,
        )
    )


class _Judge:
    """Holds what one check has seen so far."""

    def __init__(self, exercise: Exercise, function: Callable[..., Any], runner: Runner, ranks: int, seed: int) -> None:
        self.exercise, self.function, self.runner, self.ranks, self.seed = exercise, function, runner, ranks, seed
        self.runs: list[Run] = []
        self.shown = next(exercise.cases(ranks, self._random(ranks)))  # what the target is run with, for the picture

    def verdict(self) -> Verdict:
        for world in range(2, self.ranks + 1):
            for case in self.exercise.cases(world, self._random(world)):
                try:
                    run = attempt(self.function, case, self.runner)
                except Unattempted:
                    return Verdict(self.exercise.id, "not attempted", seed=self.seed)
                except Trouble as trouble:
                    words = f"{self._where(case)}: {self._told(str(trouble))}"
                    return self._failed("values", words, case, trouble.trace)
                wrong = values.judge(self.exercise, run)
                if wrong:
                    return self._failed("values", f"{self._where(case)}: {wrong}", case, run.trace)
                self.runs.append(run)
        stages: tuple[tuple[Stage, tuple[Rule, ...]], ...]
        stages = (("traffic", self.exercise.traffic), ("cost", self.exercise.cost))
        for stage, rules in stages:
            for rule, run in product(rules, self.runs):
                wrong = rule(run)
                if wrong:
                    return self._failed(stage, f"{wrong} ({self._here(run.case)})", run.case, run.trace)
        return self._passed()

    def _random(self, world: int) -> Random:
        return Random(f"{self.seed}/{world}")

    def _failed(self, stage: Stage, sentence: str, case: Case, trace: Trace) -> Verdict:
        self.shown = case
        passed = () if stage == "values" else self._worlds()
        return Verdict(self.exercise.id, "failed", stage, sentence, self.seed, passed, run=trace)

    def _passed(self) -> Verdict:
        worlds, sizes = self._worlds(), sorted({run.case.size for run in self.runs})
        run = next(run for run in self.runs if run.case.world == worlds[-1])
        self.shown = run.case
        words = [f"right on {_span(worlds)} ranks"]
        if self.exercise.size:
            words.append(f", {self.exercise.size} = {_span(sizes)}")
        if self.exercise.praise:
            words.append(f"; {self.exercise.praise}")
        words.append(
            ". On 2 ranks left is right: check it on 3 or more too." if worlds == (2,) else ". Nothing to add."
        )
        return Verdict(self.exercise.id, "passed", "", "".join(words), self.seed, worlds, run=run.trace)

    def _worlds(self) -> tuple[int, ...]:
        return tuple(sorted({run.case.world for run in self.runs}))

    def _here(self, case: Case) -> str:
        size = f", {self.exercise.size} = {case.size}" if self.exercise.size else ""
        return f"{case.world} ranks{size}"

    def _where(self, case: Case) -> str:
        before = [world for world in self._worlds() if world < case.world]
        if not before:
            return f"on {self._here(case)}"
        return f"right on {joined(before)} ranks{' only' if len(before) == 1 else ''}; on {self._here(case)}"

    def _told(self, trouble: str) -> str:
        """The ranks' sentences, without the advice to reset (the check sees to it), with the usual cause."""
        words = re.sub(r" Run cluster\.reset\(\)[^.]*\.", "", trouble)
        failed = re.search(r"^rank \d+ (failed|died)", words, re.MULTILINE)  # then the cause is in the sentence
        usual = self.exercise.errors if failed else self.exercise.advice
        stop = "" if words.rstrip().endswith(".") else "."
        return words + next((f"{stop} {text}" for pattern, text in usual if re.search(pattern, words)), "")


def _span(numbers: Sequence[int]) -> str:
    return f"{numbers[0]} to {numbers[-1]}" if numbers[0] != numbers[-1] else str(numbers[0])


# -------------------------------------------------------------------------------------- one run of the learner's code


class Trouble(Exception):
    """The function failed, hung or died on a rank; the text is the runner's sentence."""

    def __init__(self, sentence: str, trace: Trace) -> None:
        super().__init__(sentence)
        self.trace = trace


class Unattempted(Exception):
    """The stub was left as it was."""


def attempt(function: Callable[..., Any], case: Case, runner: Runner) -> Run:
    """Run a case. Raises Unattempted for a stub and Trouble where ranks failed; the cluster's own errors pass."""
    try:
        answers, trace = runner(watched(function, case.drive), case.world, case.arguments)
    except Exception as error:
        seen: Trace | None = getattr(error, "trace", None)
        if seen is None:
            raise
        if _stub_was_reached(seen):
            raise Unattempted from error
        raise Trouble(_without_our_line(str(error), seen), seen) from error
    if any(isinstance(answer, str) and answer == _UNATTEMPTED for answer in answers):
        raise Unattempted
    code = getattr(function, "__code__", None)
    return Run(
        case=case,
        results=tuple(result for result, _ in answers),
        after=tuple(arguments for _, arguments in answers),
        trace=trace,
        file=code.co_filename if code else "",
    )


def watched(function: Callable[..., Any], drive: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """The function, or what drives it, returning its arguments as well: a change in place shows on the rank only."""
    unattempted = _UNATTEMPTED

    @functools.wraps(function)
    def watch(*arguments: Any) -> Any:
        from kit.grade.answers import NotAttempted

        try:
            return function(*arguments) if drive is None else drive(function, *arguments), arguments
        except NotAttempted:
            return unattempted

    return watch


def _stub_was_reached(trace: Trace) -> bool:
    states = trace.positions[-1].states if trace.positions else ()
    return any(state.error is not None and state.error.kind == "NotAttempted" for state in states)


def _without_our_line(sentence: str, trace: Trace) -> str:
    """A failure that no line of the learner's is part of has no line: one of this file would only mislead."""
    for state in trace.positions[-1].states if trace.positions else ():
        if state.error and state.place and state.place.file == __file__:
            ours = f"rank {state.rank} failed at {state.place.words(state.error.elsewhere)}"
            sentence = sentence.replace(f"{ours}:", f"rank {state.rank} failed:")
    return sentence
