"""Clusters for tests of stepping and recording: one of each size, kept while tests need it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kit.cluster.cluster import Cluster
from kit.cluster.request import checked


@pytest.fixture(scope="session")
def cluster_of() -> Iterator[Callable[[int], Cluster]]:
    """`cluster_of(3)`: a running cluster of three CPU ranks, the same one for every test that asks."""
    made: dict[int, Cluster] = {}

    def get(world: int) -> Cluster:
        if world not in made:
            made[world] = Cluster(checked(world, "cpu"))
        return made[world]

    yield get
    for cluster in made.values():
        cluster.stop()


@pytest.fixture
def ranks(cluster_of: Callable[[int], Cluster], world: int) -> Cluster:
    """A cluster of `world` ranks: two and three, or one to eight in the full matrix."""
    return cluster_of(world)


@pytest.fixture
def three(cluster_of: Callable[[int], Cluster]) -> Cluster:
    """Three ranks: enough that left is not right and a bystander exists."""
    return cluster_of(3)
