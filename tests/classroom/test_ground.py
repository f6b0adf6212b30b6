"""Answers behind walls: what is right passes, what breaks costs only itself, and inside there is nothing to find."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kit import resources
from kit.classroom import ground
from kit.classroom.dormant import dormant
from kit.classroom.ground import Ground, Ranks, Walls
from kit.classroom.handins import Answer
from kit.grade import discovery
from kit.grade.checker import Judge
from kit.grade.verdict import Verdict
from tests.classroom.made_class import LOOPS, Makes, as_expected, seventy
from tests.classroom.test_grading import graded

LIMIT = 1000.0  # s
RANKS = discovery.labs()["00_ranks"]
PLAIN = ground.plain(3)
MADE = {"plain": lambda: PLAIN, "bubblewrap": lambda: ground.bubblewrap(3), "namespaces": lambda: ground.namespaces(3)}


@pytest.fixture(scope="module", params=MADE)
def walls(request: pytest.FixtureRequest) -> Walls:
    made = MADE[request.param]()
    if made is None:
        pytest.skip(
            f"{request.param} cannot be used here: where user namespaces are allowed, apt-get install bubblewrap"
        )
    return made


@pytest.fixture(scope="module")
def ranks(walls: Walls) -> Iterator[Ranks]:
    with walls.ranks() as made:
        yield made


def said(ranks: Ranks, text: str, limit: float = LIMIT) -> Verdict:
    """The verdict on a function that answers who-am-i; its imports are above it."""
    exercise = RANKS.exercises[0]
    answer = Answer(exercise.id, "my_share", text)
    runner = ranks.runner(answer, time.monotonic() + limit)
    return Judge(exercise, dormant(answer), runner, 3, 20).verdict()


def returned(ranks: Ranks, expression: str) -> str:
    """What an expression is inside, as the sentence on a wrong result shows it."""
    return said(ranks, f"import os, socket\n\n\ndef my_share(total):\n    return {expression}\n").sentence


def test_a_class_gets_its_marks(tmp_path: Path, walls: Walls) -> None:
    makes = Makes(RANKS)
    made = [makes.perfect(), makes.partial(), *makes.broken(), *makes.unreadable()]
    assert list(as_expected(made, graded(tmp_path, made, walls.ranks))) == []


@pytest.mark.parametrize("name", discovery.labs())
def test_seventy_hand_ins_of_each_lab(tmp_path: Path, name: str, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--full-matrix"):
        pytest.skip("minutes; in the full matrix")
    made = seventy(discovery.labs()[name])
    assert len(made) >= 70
    four: Ground = ground.strongest(4).ranks
    assert list(as_expected(made, graded(tmp_path, made, four, ranks=4))) == []


def test_what_one_answer_leaves_behind_is_gone_for_the_next(ranks: Ranks) -> None:
    patch = "import torch\nimport os\n\n\ndef my_share(total):\n    torch.tensor = None\n    os.environ['LEFT'] = 'x'\n"
    assert said(ranks, patch).status == "failed"
    sentence = returned(ranks, "(os.environ.get('LEFT'), callable(__import__('torch').tensor))")
    assert "(None, True)" in sentence


@pytest.mark.parametrize("kind", LOOPS)
def test_what_takes_its_ranks_with_it_costs_only_its_own_mark(ranks: Ranks, kind: str) -> None:
    edit, expected = LOOPS[kind]
    text = edit("def my_share(total):\n    return 0, 0\n")
    verdict = said(ranks, text, 3.0 if kind == "it loops" else LIMIT)
    assert verdict.status == "failed"
    assert any(words in verdict.sentence for words in expected.says), verdict.sentence
    assert "returned 1" in returned(ranks, "1")


def test_an_object_that_equals_everything_is_its_name(ranks: Ranks) -> None:
    text = "class Any:\n    def __eq__(self, other):\n        return True\n\n\ndef my_share(total):\n    return Any()\n"
    assert "returned an object of the type Any, where" in said(ranks, text).sentence


def test_behind_walls_there_is_nothing_to_find(ranks: Ranks, walls: Walls) -> None:
    if walls is PLAIN:
        pytest.skip("plain processes see what their user sees, and the report says so")
    kit = "__import__('kit').__path__[0]"
    looks = {
        f"os.path.exists({__file__!r})": "returned False",
        f"os.path.exists({str(resources.labs() / 'solutions')!r})": "returned False",
        f"open({kit} + '/topics/zero/mistakes.py').read()": "PermissionError",
        "len([name for name in os.listdir('/proc') if name.isdecimal()]) < 40": "returned True",
        f"os.access({kit}, os.W_OK)": "returned False",
        "socket.socket().connect_ex(('192.0.2.1', 80)) == 0": "returned False",
    }
    for look, words in looks.items():
        assert words in returned(ranks, look)


def test_nothing_of_it_is_left(walls: Walls) -> None:
    this = psutil.Process(os.getpid())
    before = this.children(recursive=True)
    with walls.ranks() as made:
        assert "returned 1" in returned(made, "1")
        own = [child for child in this.children(recursive=True) if child not in before]
        assert own
    _, left = psutil.wait_procs(own, timeout=60)
    assert left == []
