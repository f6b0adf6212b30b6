"""Where answers run in tests of what is done with them: on the four ranks of all tests, without walls."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from kit.api import runner_of
from kit.classroom.ground import Ground, Ranks
from kit.classroom.handins import Answer
from kit.grade.checker import watched
from kit.grade.exercise import Runner
from kit.run.live import LiveRunner
from kit.trace.trace import Trace
from tests.clusters import NEVER


class Unwalled:
    """Makes functions of answers, which are this project's own here, and runs them. counts: what was asked for."""

    def __init__(self, live: LiveRunner) -> None:
        self._run = runner_of(live, NEVER)
        self.answers: list[str] = []

    def runner(self, answer: Answer, deadline: float) -> Runner:
        self.answers.append(answer.exercise)
        names: dict[str, Any] = {"__name__": "handed_in"}

        def run(asked: Callable[..., Any], world: int, arguments: Sequence[tuple[Any, ...]]) -> tuple[Any, Trace]:
            linecache.cache[answer.file] = (0, None, answer.source.splitlines(keepends=True), answer.file)
            if answer.function not in names:
                exec(compile(answer.source, answer.file, "exec", dont_inherit=True), names)
            _, drive, members = asked.watching  # type: ignore[attr-defined]
            return self._run(watched(names[answer.function], drive, members), world, arguments)

        return run


@pytest.fixture
def unwalled(kernel_of_four: LiveRunner) -> Unwalled:
    return Unwalled(kernel_of_four)


@pytest.fixture
def ground(unwalled: Unwalled) -> Ground:
    @contextmanager
    def ranks() -> Iterator[Ranks]:
        yield unwalled

    made: Callable[[], AbstractContextManager[Ranks]] = ranks
    return made
