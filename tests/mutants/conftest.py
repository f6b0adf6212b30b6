"""One cluster for all wrong solutions: what one of them breaks must be whole again for the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kit
from kit.check import Verdict

RANKS = 4  # three or more: on two ranks left is right, and a tree is a line


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    with kit.cluster(ranks=RANKS, device="cpu") as cluster:
        yield cluster


@pytest.fixture
def judged(cluster: Any) -> Callable[..., Verdict]:
    """`check` as a notebook has it, with inputs that a failed test can name."""

    def run(function: Callable[..., Any], seed: int = 20) -> Verdict:
        return kit.check(function, seed=seed)

    return run
