"""`check(function)`: values, then traffic, then cost; the first sentence that is not fulfilled is the verdict."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

from kit.check import ledger, solutions, specs, values
from kit.check.attempt import Trouble, Unattempted, attempt
from kit.check.exercise import identity_of
from kit.check.spec import Case, Draw, Rule, Run, Runner, Spec
from kit.check.verdict import Stage, Verdict, remember
from kit.check.words import joined
from kit.trace.facts import Trace


def check(
    function: Callable[..., Any],
    runner: Runner,
    ranks: int = 4,
    seed: int | None = None,
    draw: Draw | None = None,
) -> Verdict:
    """Check a learner's answer on real ranks.

    function: marked with `@exercise`. runner: how to run it on k ranks (see `Runner`). ranks: the largest world;
    every world from 2 up to it is tried. seed: repeats the inputs of an earlier check; drawn fresh when left out.
    draw: turns a trace into HTML or SVG text, for the picture of the run beside the target.

    Raises ValueError for a function that is no exercise, or with fewer than 2 ranks.
    """
    spec = specs.find(identity_of(function))
    if ranks < 2:
        raise ValueError(
            f"a check needs at least 2 ranks, this cluster has {ranks}: start one with kit.cluster(ranks=4)"
        )
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    begun = time.monotonic()
    judge = _Judge(spec, function, runner, ranks, seed)
    verdict = judge.verdict()
    ledger.write(verdict, spec.lab, time.monotonic() - begun)
    try:
        target = attempt(solutions.function(spec), judge.shown, runner).trace
    except Trouble as trouble:  # the verdict stands without its picture, and says why there is none
        return remember(replace(verdict, note=f"The target could not be run beside it: {trouble}"))
    return remember(replace(verdict, target=target, draw=draw))


def without(function: Callable[..., Any], why: str) -> Verdict:
    """The verdict where there are no ranks to run on. Raises ValueError for a function that is no exercise."""
    spec = specs.find(identity_of(function))
    verdict = Verdict(
        spec.id, "not attempted", note=f"A check needs ranks, and there is no cluster here: {why}", no_ranks=why
    )
    ledger.write(verdict, spec.lab, 0.0)
    return remember(verdict)


class _Judge:
    """Holds what one check has seen so far."""

    def __init__(self, spec: Spec, function: Callable[..., Any], runner: Runner, ranks: int, seed: int) -> None:
        self.spec, self.function, self.runner, self.ranks, self.seed = spec, function, runner, ranks, seed
        self.runs: list[Run] = []
        self.shown = next(spec.cases(ranks, _random(seed, ranks)))  # what the target is run with, for the picture

    def verdict(self) -> Verdict:
        for world in range(2, self.ranks + 1):
            for case in self.spec.cases(world, _random(self.seed, world)):
                try:
                    run = attempt(self.function, case, self.runner)
                except Unattempted:
                    return Verdict(self.spec.id, "not attempted", seed=self.seed)
                except Trouble as trouble:
                    words = f"{self._where(case)}: {self._told(str(trouble))}"
                    return self._failed("values", words, case, trouble.trace)
                wrong = values.judge(self.spec, run)
                if wrong:
                    return self._failed("values", f"{self._where(case)}: {wrong}", case, run.trace)
                self.runs.append(run)
        stages: tuple[tuple[Stage, tuple[Rule, ...]], ...]
        stages = (("traffic", self.spec.traffic), ("cost", self.spec.cost))
        for stage, rules in stages:
            for rule, run in product(rules, self.runs):
                wrong = rule(run)
                if wrong:
                    return self._failed(stage, f"{wrong} ({self._here(run.case)})", run.case, run.trace)
        return self._passed()

    def _failed(self, stage: Stage, sentence: str, case: Case, trace: Trace) -> Verdict:
        self.shown = case
        passed = () if stage == "values" else self._worlds()
        return Verdict(self.spec.id, "failed", stage, sentence, self.seed, passed, run=trace)

    def _passed(self) -> Verdict:
        worlds, sizes = self._worlds(), sorted({run.case.size for run in self.runs})
        run = next(run for run in self.runs if run.case.world == worlds[-1])
        self.shown = run.case
        words = [f"right on {_span(worlds)} ranks"]
        if self.spec.size:
            words.append(f", {self.spec.size} = {_span(sizes)}")
        if self.spec.praise:
            words.append(f"; {self.spec.praise}")
        words.append(
            ". On 2 ranks left is right: check it on 3 or more too." if worlds == (2,) else ". Nothing to add."
        )
        return Verdict(self.spec.id, "passed", "", "".join(words), self.seed, worlds, run=run.trace)

    def _worlds(self) -> tuple[int, ...]:
        return tuple(sorted({run.case.world for run in self.runs}))

    def _here(self, case: Case) -> str:
        return f"{case.world} ranks, {self.spec.size} = {case.size}" if self.spec.size else f"{case.world} ranks"

    def _where(self, case: Case) -> str:
        before = [world for world in self._worlds() if world < case.world]
        if not before:
            return f"on {self._here(case)}"
        return f"right on {joined(before)} ranks{' only' if len(before) == 1 else ''}; on {self._here(case)}"

    def _told(self, trouble: str) -> str:
        """The ranks' sentences, without the advice to reset (the check sees to it), with the usual cause."""
        words = re.sub(r" Run cluster\.reset\(\)[^.]*\.", "", trouble)
        failed = re.search(r"^rank \d+ (failed|died)", words, re.MULTILINE)  # then the cause is in the sentence
        usual = self.spec.errors if failed else self.spec.advice
        stop = "" if words.rstrip().endswith(".") else "."
        return words + next((f"{stop} {text}" for pattern, text in usual if re.search(pattern, words)), "")


def _span(numbers: Sequence[int]) -> str:
    return f"{numbers[0]} to {numbers[-1]}" if numbers[0] != numbers[-1] else str(numbers[0])


def _random(seed: int, world: int) -> Random:
    return Random(f"{seed}/{world}")
