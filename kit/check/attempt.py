"""Runs the learner's function on ranks so that its arguments can be looked at afterwards."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from kit.check.spec import Case, Run, Runner

UNATTEMPTED = "kit.check: not attempted"


class Trouble(Exception):
    """The function failed, hung or died on a rank; the text is the runner's sentence."""

    def __init__(self, sentence: str, trace: Any) -> None:
        super().__init__(sentence)
        self.trace = trace


class Unattempted(Exception):
    """The stub was left as it was."""


def attempt(function: Callable[..., Any], case: Case, runner: Runner) -> Run:
    """Run a case. Raises Unattempted for a stub and Trouble where ranks failed; the cluster's own errors pass."""
    try:
        answers, trace = runner(watched(function, case.drive), case.world, case.arguments)
    except Exception as error:
        seen = getattr(error, "trace", None)
        if seen is None:
            raise
        if _stub_was_reached(error):
            raise Unattempted from error
        raise Trouble(_without_our_line(str(error), seen), seen) from error
    if any(isinstance(answer, str) and answer == UNATTEMPTED for answer in answers):
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

    @functools.wraps(function)
    def watch(*arguments: Any) -> Any:
        from kit.check.attempt import UNATTEMPTED as unattempted
        from kit.check.exercise import NotAttempted

        try:
            return function(*arguments) if drive is None else drive(function, *arguments), arguments
        except NotAttempted:
            return unattempted

    return watch


def _stub_was_reached(error: Exception) -> bool:
    positions = getattr(getattr(error, "trace", None), "positions", ())
    failures = [state.error for state in positions[-1].states if state.error] if positions else []
    return any(failure.kind == "NotAttempted" for failure in failures)


def _without_our_line(sentence: str, trace: Any) -> str:
    """A failure that no line of the learner's is part of has no line: one of this file would only mislead."""
    for state in trace.positions[-1].states if trace.positions else ():
        if state.error and state.place and state.place.file.replace("\\", "/").endswith("kit/check/attempt.py"):
            ours = f"rank {state.rank} failed at line {state.place.line}"
            sentence = sentence.replace(f"{ours}:", f"rank {state.rank} failed:")
    return sentence
