"""Clusters for tests of stepping and recording: one of each size, kept while tests need it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kit.clusters.request import checked
from kit.run import current
from kit.run.live import LiveRunner


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


@pytest.fixture
def kernel_of_four(four: LiveRunner, monkeypatch: pytest.MonkeyPatch) -> LiveRunner:
    """Four ranks as what this kernel has: `kit.record` and `kit.check` use them."""
    monkeypatch.setattr(current, "held", lambda: four)
    return four


@pytest.fixture
def short_path() -> Iterator[Path]:
    """As `tmp_path`, with a name that leaves room for that of a socket."""
    with tempfile.TemporaryDirectory(prefix="ls-") as folder:
        yield Path(folder)


@pytest.fixture
def ranks(cluster_of: Callable[[int], LiveRunner], world: int) -> LiveRunner:
    """A cluster of `world` ranks: two and three, or one to eight in the full matrix."""
    return cluster_of(world)


@pytest.fixture
def three(cluster_of: Callable[[int], LiveRunner]) -> LiveRunner:
    """Three ranks: enough that left is not right and a bystander exists."""
    return cluster_of(3)
