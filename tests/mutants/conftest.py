"""Wrong solutions run on the four ranks of all tests: what one of them breaks must be whole again for the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kit
from kit.grade.verdict import Verdict
from kit.run.live import LiveRunner


@pytest.fixture
def judged(kernel_of_four: LiveRunner) -> Callable[..., Verdict]:
    """`check` as a notebook has it, with inputs that a failed test can name. Four ranks: on two, left is right."""

    def run(function: Callable[..., Any]) -> Verdict:
        return kit.check(function, seed=20)

    return run
