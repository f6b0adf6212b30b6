"""`check(function)`: values, then traffic, then cost; the first sentence that is not fulfilled is the verdict."""

from __future__ import annotations

import functools
import inspect
import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice, product
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from kit.grade import marks, reading, values
from kit.grade.answers import exercise_of, solution_is_here, solution_of
from kit.grade.exercise import Case, Exercise, Rule, Run, Runner, Stage
from kit.grade.traffic import beyond_the_group
from kit.grade.verdict import Verdict, remember
from kit.grade.words import joined
from kit.trace.text import named

if TYPE_CHECKING:
    from kit.trace.trace import Trace

_OF_A_LIBRARY = re.compile(r"^rank \d+ failed.*(gloo|Gloo|enforce fail|tensor list).*$", re.MULTILINE)
_UNATTEMPTED = "kit.grade: not attempted"
_COUNTED_WITHIN = "dist.get_rank(group) and dist.get_world_size(group) count within the group"
_COUNTED_ELSEWHERE = (
    "dist.get_rank(group), group_dst= and group_src= count within the group, where rank 1 is number 0; dist.get_rank(),"
    " dst and src count in the world, also where dst and src are not named"
)


def check(function: Callable[..., Any], runner: Runner, ranks: int = 4, seed: int | None = None) -> Verdict:
    """Check a learner's answer on real ranks.

    function: marked with `@exercise`. runner: how to run it on k ranks (see `Runner`). ranks: the largest world;
    every world from 2 up to it is tried, then larger ones that the exercise names. seed: repeats the inputs of an
    earlier check; drawn fresh when left out.

    Raises ValueError for a function that is no exercise, or with fewer than 2 ranks.
    """
    exercise = exercise_of(function)
    if ranks < 2:
        raise ValueError(
            f"a check needs at least 2 ranks, this cluster has {ranks}: start one with kit.cluster(ranks=4)"
        )
    begun = time.monotonic()
    judge = Judge(exercise, function, runner, ranks, secrets.randbelow(1_000_000) if seed is None else seed)
    verdict = judge.verdict()
    _leave_mark(verdict, exercise, time.monotonic() - begun)
    if not solution_is_here(exercise):
        return remember(verdict, function)
    try:
        target = attempt(solution_of(exercise), judge.shown, runner).trace
    except Trouble as trouble:  # the verdict stands without its picture, and says why there is none
        return remember(replace(verdict, note=f"The target could not be run beside it: {trouble}"), function)
    return remember(replace(verdict, target=target), function)


def check_without_ranks(function: Callable[..., Any], why: str) -> Verdict:
    """The verdict where there are no ranks to run on. Raises ValueError for a function that is no exercise."""
    exercise = exercise_of(function)
    note = f"A check needs ranks, and there is no cluster here: {why}"
    verdict = Verdict(exercise.id, "not attempted", note=note, no_ranks=why)
    _leave_mark(verdict, exercise, 0.0)
    return remember(verdict, function)


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
            verdict.seed if verdict.attempted else None,
            verdict.worlds,
        )
    )


class Judge:
    """Holds what one check has seen so far. The arguments are those of `check`."""

    def __init__(self, exercise: Exercise, function: Callable[..., Any], runner: Runner, ranks: int, seed: int) -> None:
        self.exercise, self.function, self.runner, self.ranks, self.seed = exercise, function, runner, ranks, seed
        self.runs: list[Run] = []
        self.shown = next(exercise.cases(ranks, self._random(ranks)))  # what the target is run with, for the picture
        self._beyond = [world for world in exercise.beyond if world > ranks]

    @functools.cached_property
    def _race(self) -> str:
        return reading.race(self.function)

    def verdict(self) -> Verdict:
        for world in (*range(2, self.ranks + 1), *self._beyond):
            cases = self.exercise.cases(world, self._random(world))
            for case in islice(cases, 1) if world in self._beyond else cases:
                try:
                    run = attempt(self.function, case, self.runner)
                except Unattempted:
                    return Verdict(self.exercise.id, "not attempted", seed=self.seed)
                except Trouble as trouble:
                    words = f"{self._where(case)}: {self._told(str(trouble), case, trouble.trace)}"
                    return self._failed("values", words, case, trouble.trace)
                wrong = self._race or values.judge(self.exercise, run)
                if wrong:
                    words = f"{self._where(case)}: {self._with_remark(wrong)}"
                    return self._failed("values", words, case, run.trace)
                self.runs.append(run)
        stages: tuple[tuple[Stage, tuple[Rule, ...]], ...]
        stages = (("traffic", self.exercise.traffic), ("cost", self.exercise.cost))
        for stage, rules in stages:
            for rule, run in product(rules, self.runs):
                wrong = rule(run)
                if wrong:
                    return self._failed(stage, f"{wrong} ({self._here(run.case)})", run.case, run.trace)
        return self._in_a_group() or self._passed()

    def _in_a_group(self) -> Verdict | None:
        """A function that takes a group works in it: on the first ranks, while the last one has no part in it."""
        if self.ranks < 3:
            return None
        if "group" not in inspect.signature(self.function).parameters:
            return self._without_a_group()
        first, last = range(self.ranks - 1), range(1, self.ranks)
        groups = (first, last) if self.exercise.peers_in_group else (first,)
        return next(filter(None, map(self._among, groups)), None)

    def _without_a_group(self) -> Verdict | None:
        """Where the exercise asks for a group, leaving it out of the arguments is no way round."""
        exercise = self.exercise
        if not solution_is_here(exercise):
            return None
        if "group" not in inspect.signature(solution_of(exercise)).parameters:
            return None
        words = (
            f"right on {_worlds_text(self._worlds())} ranks; {exercise.function} no longer takes a group, and is to"
            " work among some of the ranks too: put `group=None` back behind its other arguments"
        )
        return self._failed("values", words, self.runs[-1].case, self.runs[-1].trace)

    def _among(self, members: range) -> Verdict | None:
        case = next(self.exercise.cases(len(members), self._random(len(members))))
        arguments = [*case.arguments]
        arguments.insert(0 if members.start else len(members), case.arguments[-1])  # of the one who has no part
        everyone = replace(case, world=self.ranks, arguments=tuple(arguments))
        try:
            run = attempt(self.function, everyone, self.runner, tuple(members))
        except Trouble as trouble:
            trace = trouble.trace
            wrong = _plain(str(trouble)) if members.start else self._told(str(trouble), case, trace)
        else:
            part = slice(members.start, members.stop)
            own = replace(run, case=case, results=run.results[part], after=run.after[part])
            trace, wrong = run.trace, values.judge(self.exercise, own) or ""
            if members.start and wrong:  # a sentence would name ranks as the group counts them
                wrong = "the results are wrong, which are right among the first ranks"
        file = self.function.__code__.co_filename
        wrong = beyond_the_group(Run(everyone, (), (), trace, file), tuple(members)) or (
            wrong and f"{wrong} ({_COUNTED_ELSEWHERE if members.start else _COUNTED_WITHIN})"
        )
        if not wrong:
            return None
        where = f"right on {_worlds_text(self._worlds())} ranks; in a group of {named(members)} of {self.ranks}"
        return self._failed("values", f"{where}: {wrong}", case, trace)

    def _random(self, world: int) -> Random:
        return Random(f"{self.seed}/{world}")

    def _failed(self, stage: Stage, sentence: str, case: Case, trace: Trace) -> Verdict:
        self.shown = case
        passed = () if stage == "values" else self._worlds()
        return Verdict(self.exercise.id, "failed", stage, sentence, self.seed, passed, run=trace)

    def _passed(self) -> Verdict:
        worlds, sizes = self._worlds(), sorted({run.case.size for run in self.runs})
        run = next(run for run in self.runs if run.case.world == self.ranks)
        self.shown = run.case
        words = [f"right on {_worlds_text(worlds)} ranks"]
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

    def _told(self, trouble: str, case: Case, trace: Trace) -> str:
        """The ranks' sentences, without the advice to reset (the check sees to it), with the usual cause."""
        words = _plain(trouble)
        failed = re.search(r"^rank \d+ (failed|died)", words, re.MULTILINE)  # then the cause is in the sentence
        if failed and (seen := reading.remark(self.function)):
            return _sentences(words, seen)
        usual = self.exercise.errors if failed else self.exercise.advice
        told = next((text for pattern, text in usual if re.search(pattern, words)), "")
        advice = told(case, trace) if callable(told) else told
        return _sentences(words, advice) if advice else words

    def _with_remark(self, wrong: str) -> str:
        seen = reading.remark(self.function)
        return _sentences(wrong, seen) if seen else wrong


def _plain(trouble: str) -> str:
    """The ranks' sentences, without the advice to reset, and without a library's where ours say what did not fit."""
    words = re.sub(r" Run cluster\.reset\(\)[^.]*\.", "", trouble)
    words = re.sub(r"\bgroup <[^<>]* object at 0x[0-9a-f]+>", "this group", words)
    return _OF_A_LIBRARY.sub("", words).strip() or words


def _sentences(*texts: str) -> str:
    return " ".join(text if text.rstrip().endswith(".") else f"{text}." for text in texts)


def _span(numbers: Sequence[int]) -> str:
    return f"{numbers[0]} to {numbers[-1]}" if numbers[0] != numbers[-1] else str(numbers[0])


def _worlds_text(worlds: Sequence[int]) -> str:
    """'2 to 4', and '2 to 4 and 7' where a larger one was tried too."""
    together = [world for number, world in enumerate(worlds) if world == worlds[0] + number]
    return joined([_span(together), *worlds[len(together) :]])


# -------------------------------------------------------------------------------------- one run of the learner's code


class Trouble(Exception):
    """The function failed, hung or died on a rank; the text is the runner's sentence."""

    def __init__(self, sentence: str, trace: Trace) -> None:
        super().__init__(sentence)
        self.trace = trace


class Unattempted(Exception):
    """The stub was left as it was."""


def attempt(function: Callable[..., Any], case: Case, runner: Runner, members: tuple[int, ...] = ()) -> Run:
    """Run a case. members: see `watched`.

    Raises Unattempted for a stub and Trouble where ranks failed; the cluster's own errors pass.
    """
    try:
        answers, trace = runner(watched(function, case.drive, members), case.world, case.arguments)
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


class Watching(NamedTuple):
    """What a watched function was made of."""

    function: Callable[..., Any]
    drive: Callable[..., Any] | None
    members: tuple[int, ...]


def watched(
    function: Callable[..., Any], drive: Callable[..., Any] | None = None, members: tuple[int, ...] = ()
) -> Callable[..., Any]:
    """The function, or what drives it, returning its arguments as well: a change in place shows on the rank only.

    members: it is called with a group of these ranks; the others return None. None of them: without a group.
    What comes back carries all three as `watching`, for a runner that builds the function anew elsewhere.
    """
    unattempted = _UNATTEMPTED

    @functools.wraps(function)
    def watch(*arguments: Any) -> Any:
        from kit.grade.answers import NotAttempted

        asked: Callable[..., Any] = function
        if members:
            import torch.distributed as dist

            group = dist.new_group(list(members))
            if dist.get_rank() not in members:
                return None, arguments
            asked = functools.partial(function, group=group)
        try:
            return asked(*arguments) if drive is None else drive(asked, *arguments), arguments
        except NotAttempted:
            return unattempted

    watch.watching = Watching(function, drive, members)  # type: ignore[attr-defined]
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
