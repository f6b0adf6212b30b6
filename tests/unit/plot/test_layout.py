"""No label covers an arrow, a rank or another label, whoever sends to whom."""

from __future__ import annotations

from math import hypot

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.plot.layout import Arrow, Label, arrow, label_box, place_labels, ring

WIDTH = 460
Point = tuple[float, float]


def drawn(world: int, pairs: list[tuple[int, int]]) -> tuple[list[Arrow], list[Label | None], list[Point]]:
    height, radius = (180, 18.0) if world <= 4 else (232, 14.0)
    nodes = ring(world, WIDTH, height, radius)
    arrows = [arrow(nodes[a], nodes[b], radius, 6.0 if (b, a) in pairs else 0.0) for a, b in pairs]
    texts = [f"chunk {a} · 8 B ✓" for a, _ in pairs]
    return arrows, place_labels(texts, arrows, nodes, radius, WIDTH, height), nodes


def check(world: int, pairs: list[tuple[int, int]]) -> list[Label | None]:
    arrows, labels, nodes = drawn(world, pairs)
    height = 180 if world <= 4 else 232
    radius = 18.0 if world <= 4 else 14.0
    boxes = [label_box(label) for label in labels if label is not None]
    for i, (left, top, right, bottom) in enumerate(boxes):
        assert left >= 0 and top >= 0 and right <= WIDTH and bottom <= height
        for other in boxes[:i]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
        for x, y in nodes:
            assert hypot(max(left - x, 0, x - right), max(top - y, 0, y - bottom)) >= radius
        for line in arrows:
            for step in range(101):
                x = line.start[0] + (line.end[0] - line.start[0]) * step / 100
                y = line.start[1] + (line.end[1] - line.start[1]) * step / 100
                assert not (left < x < right and top < y < bottom)
    return labels


@pytest.mark.parametrize("world", range(2, 9))
def test_rings_have_all_their_labels(world: int) -> None:
    labels = check(world, [(r, (r + 1) % world) for r in range(world)])
    assert all(label is not None for label in labels)


@pytest.mark.parametrize("world", range(2, 5))
def test_stars_have_all_their_labels(world: int) -> None:
    assert all(label is not None for label in check(world, [(0, r) for r in range(1, world)]))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_messages(data: st.DataObject) -> None:
    world = data.draw(st.integers(2, 8))
    every = [(a, b) for a in range(world) for b in range(world) if a != b]
    check(world, data.draw(st.lists(st.sampled_from(every), max_size=12, unique=True)))


@pytest.mark.parametrize("world", range(1, 25))
def test_ranks_do_not_touch(world: int) -> None:
    height, radius = (180, 18.0) if world <= 4 else (232, 14.0 if world <= 8 else 9.0)
    nodes = ring(world, WIDTH, height, radius)
    assert len(nodes) == world
    for i, (x, y) in enumerate(nodes):
        assert radius <= x <= WIDTH - radius and radius <= y <= height - radius
        for other in nodes[:i]:
            assert hypot(x - other[0], y - other[1]) > 2 * radius or world > 16


def test_an_arrow_ends_at_the_rims() -> None:
    line = arrow((0, 0), (100, 0), 10)
    assert (line.start, line.end) == ((15, 0), (85, 0))
