"""Gloo ranks for pipelines: one world of each size, kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.gloo import World


@pytest.fixture(scope="module")
def pipeline_world() -> Iterator[Callable[[int], World]]:
    made: dict[int, World] = {}

    def get(size: int) -> World:
        if size not in made:
            made[size] = World(size)
        return made[size]

    yield get
    for world in made.values():
        world.close()
