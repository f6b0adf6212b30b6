"""Clusters for tests of stepping and recording: one of each size, kept while tests need it."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kit.clusters.request import checked
from kit.run import current, cursor, record, scheduler, session
from kit.run.live import LiveRunner
from tests.manners import mannered

NEVER = 1000.0  # s: longer than a test may take, so what ends has not ended because its time was up
MOTIONS = ("step", "over", "into", "out", "to_collective", "to_line", "finish")


@pytest.fixture(scope="session", autouse=True)
def no_hurry() -> Iterator[None]:
    """Motions and recorded runs wait for ranks that run as long as a test says, or for ever: a busy machine is slow,
    not wrong.
    """
    with pytest.MonkeyPatch.context() as patch:
        for module in (session, record):
            patch.setattr(module, "PATIENCE", NEVER)
        for motion in MOTIONS:
            function = getattr(session.Session, motion)
            *others, timeout = function.__defaults__
            assert timeout == cursor.PATIENCE
            patch.setattr(function, "__defaults__", (*others, NEVER))
        yield


@pytest.fixture(scope="session")
def cluster_of() -> Iterator[Callable[[int], LiveRunner]]:
    """`cluster_of(3)`: a running cluster of three CPU ranks, the same one for every test that asks."""
    made: dict[int, LiveRunner] = {}

    def get(world: int) -> LiveRunner:
        if world not in made:
            made[world] = LiveRunner(checked(world, "cpu"))
        return made[world]

    yield get
    for cluster in made.values():
        cluster.stop()


@pytest.fixture(scope="session")
def four(cluster_of: Callable[[int], LiveRunner]) -> LiveRunner:
    """Four ranks, as labs have them."""
    return cluster_of(4)


@pytest.fixture(scope="session")
def three_on_nccl() -> Iterator[LiveRunner]:
    """Three ranks whose groups have NCCL's manners."""
    with mannered():
        cluster = LiveRunner(checked(3, "cpu"))
    yield cluster
    cluster.stop()


@pytest.fixture
def kernel_of_four(four: LiveRunner, monkeypatch: pytest.MonkeyPatch) -> LiveRunner:
    """Four ranks as what this kernel has: `kit.record` and `kit.check` use them."""
    monkeypatch.setattr(current, "held", lambda: four)
    return four


@pytest.fixture
def ctrl_c_is_heard() -> Iterator[None]:
    """Hypothesis watches the garbage collector, and what is raised while it does is lost."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """As `tmp_path`, with a name that leaves room for that of a socket."""
    with tempfile.TemporaryDirectory(prefix="ls-") as folder:
        yield Path(folder)


@pytest.fixture
def time_to_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """No ranks are forked anew because one takes its time to leave the run before."""
    monkeypatch.setattr(scheduler, "GRACE", NEVER)


@pytest.fixture
def ranks(cluster_of: Callable[[int], LiveRunner], world: int) -> LiveRunner:
    """A cluster of `world` ranks: two and three, or one to eight in the full matrix."""
    return cluster_of(world)


@pytest.fixture
def three(cluster_of: Callable[[int], LiveRunner]) -> LiveRunner:
    """Three ranks: enough that left is not right and a bystander exists."""
    return cluster_of(3)
