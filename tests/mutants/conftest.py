"""Wrong solutions run on the four ranks of all tests: what one of them breaks must be whole again for the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kit.api import _on
from kit.grade import checker
from kit.grade.verdict import Verdict
from kit.run.live import LiveRunner
from tests.clusters import NEVER


@pytest.fixture
def judged(kernel_of_four: LiveRunner) -> Callable[..., Verdict]:
    """`check` as a notebook has it, with inputs that a failed test can name, and ranks that are not forked for it.

    Four ranks: on two, left is right.
    """
    runner = _on(kernel_of_four, NEVER)

    def run(function: Callable[..., Any]) -> Verdict:
        return checker.check(function, runner, kernel_of_four.size, seed=20)

    return run
