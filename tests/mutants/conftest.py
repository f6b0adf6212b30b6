"""Wrong solutions run on the four ranks of all tests: what one of them breaks must be whole again for the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kit.api import runner_of
from kit.grade import checker
from kit.grade.exercise import Exercise, Runner
from kit.grade.verdict import Verdict
from kit.run.live import LiveRunner
from tests.clusters import NEVER

SEED = 20  # inputs that a failed test can name


@pytest.fixture
def runner(kernel_of_four: LiveRunner) -> Runner:
    """How a check runs code, on ranks that are not forked for it."""
    return runner_of(kernel_of_four, NEVER)


@pytest.fixture
def judged(runner: Runner) -> Callable[..., Verdict]:
    """`check` as a notebook has it. Four ranks: on two, left is right."""
    return lambda function: checker.check(function, runner, 4, SEED)


@pytest.fixture
def judged_on(runner: Runner) -> Callable[[Exercise, Callable[..., Any], int], Verdict]:
    """What it says, with so many ranks at most; the solution is not run beside it."""
    return lambda exercise, function, ranks: checker.Judge(exercise, function, runner, ranks, SEED).verdict()
