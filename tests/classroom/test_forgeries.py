"""Forgeries that walls hold get no mark, and none spoils that of the next."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator

import pytest

from kit.classroom import ground
from kit.classroom.dormant import dormant
from kit.classroom.ground import Ended, Ranks
from kit.classroom.handins import Answer
from kit.grade import answers, discovery
from kit.grade.checker import Judge
from tests.classroom.forgeries import AROUND_THE_BROKER, HELD, SHORT

EXERCISE = discovery.find("broadcast")
LIMIT = 10.0  # s, for those that run on
WALLS = {"bubblewrap": ground.bubblewrap, "namespaces": ground.namespaces}


@pytest.fixture(scope="module", params=WALLS)
def ranks(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    walls = WALLS[request.param](3)
    if walls is None:
        pytest.skip(f"{request.param} cannot be used here, and plain processes say that they hold little")
    with walls.ranks() as made:
        yield made


def status(ranks: Ranks, text: str, limit: float) -> str:
    answer = Answer(EXERCISE.id, EXERCISE.function, text)
    try:
        return Judge(EXERCISE, dormant(answer), ranks.runner(answer, time.monotonic() + limit), 3, 20).verdict().status
    except Ended:
        return "failed"


@pytest.mark.parametrize("name", HELD)
def test_a_forgery_is_held(ranks: Ranks, name: str, request: pytest.FixtureRequest) -> None:
    if name not in SHORT and not request.config.getoption("--full-matrix"):
        pytest.skip("in the full matrix")
    assert status(ranks, HELD[name], LIMIT) in ("failed", "not attempted")


def test_a_right_answer_passes_after_all_of_them(ranks: Ranks) -> None:
    head = "import torch\nimport torch.distributed as dist\n\n\n"
    assert status(ranks, head + inspect.getsource(answers.solution_of(EXERCISE)), 1000.0) == "passed"


@pytest.mark.parametrize("name", AROUND_THE_BROKER)
def test_traffic_past_the_broker_earns_nothing(ranks: Ranks, name: str) -> None:
    assert status(ranks, AROUND_THE_BROKER[name], LIMIT) == "failed"


def test_plain_processes_say_of_themselves_that_ranks_can_pass_the_broker_by(
    request: pytest.FixtureRequest,
) -> None:
    if not request.config.getoption("--full-matrix"):
        pytest.skip("in the full matrix")
    plain = ground.plain(3)
    assert any("ranks that pass data to each other by files" in sentence for sentence in plain.not_held)
    with plain.ranks() as made:
        assert status(made, AROUND_THE_BROKER["talks by an abstract socket"], 1000.0) == "passed"
