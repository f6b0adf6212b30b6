"""The solutions of all labs on ranks whose groups have NCCL's manners: what a learner writes must do on GPUs, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kit.clusters.request import checked
from kit.grade import answers, discovery
from kit.grade.answers import exercise
from kit.grade.verdict import Verdict
from kit.run import current
from kit.run.live import LiveRunner
from tests.manners import mannered

EXERCISES = discovery.exercises()


@pytest.fixture(scope="module")
def four_on_nccl() -> Iterator[LiveRunner]:
    with mannered():
        cluster = LiveRunner(checked(4, "cpu"))
    yield cluster
    cluster.stop()


@pytest.fixture
def kernel_of_four(four_on_nccl: LiveRunner, monkeypatch: pytest.MonkeyPatch) -> LiveRunner:
    monkeypatch.setattr(current, "held", lambda: four_on_nccl)
    return four_on_nccl


@pytest.mark.timeout(120)
@pytest.mark.parametrize("identity", EXERCISES)
def test_a_solution_passes(judged: Callable[..., Verdict], identity: str) -> None:
    verdict = judged(exercise(identity)(answers.solution_of(EXERCISES[identity])))
    assert verdict.passed, str(verdict)
