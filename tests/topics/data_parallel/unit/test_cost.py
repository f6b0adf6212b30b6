"""What a backward pass hides of its communication, worked out by hand and with a clock that ticks."""

from __future__ import annotations

import itertools

import pytest

from kit.topics.data_parallel.cost import predicted_overlap


def slow(n: int, nbytes: float, latency: float, bandwidth: float) -> float:
    """A link without ranks: a + S b."""
    return latency + nbytes / bandwidth


LINK = {"ranks": 2, "latency": 0.0, "bandwidth": 1.0, "algorithm": slow}


def test_overlap_by_hand() -> None:
    """Ten seconds of backward. Link slower than computing: it starts at the first bucket and never rests."""
    one = predicted_overlap([10.0], backward=10.0, **LINK)
    assert (one.communication, one.exposed, one.hidden, one.seconds) == (10, 10, 0, 20), "one bucket hides nothing"
    five = predicted_overlap([2.0] * 5, backward=10.0, **LINK)
    assert [(b.ready, b.begins, b.ends) for b in five.buckets] == [
        (2, 2, 4),
        (4, 4, 6),
        (6, 6, 8),
        (8, 8, 10),
        (10, 10, 12),
    ]
    assert (five.exposed, five.hidden) == (2, 8), "the last bucket at least"
    crowded = predicted_overlap([4.0] * 5, backward=10.0, **LINK)
    assert [(b.ready, b.begins, b.ends) for b in crowded.buckets] == [
        (2, 2, 6),
        (4, 6, 10),
        (6, 10, 14),
        (8, 14, 18),
        (10, 18, 22),
    ]
    assert crowded.exposed == 12
    uneven = predicted_overlap([1.0, 9.0], backward=10.0, **LINK)
    assert uneven.exposed == 9


def test_overlap_agrees_with_a_clock_that_ticks() -> None:
    """Another way to the same numbers: time in small ticks, a link that works whenever a full bucket is there."""
    sizes, backward, tick = [3, 1, 4, 1, 5], 28, 1
    full_at = [backward * done / 14 for done in itertools.accumulate(sizes)]
    waiting: list[int] = []
    clock, left, sent = 0, 0, 0
    while sent < len(sizes):
        waiting += [2 * size for size, at in zip(sizes, full_at, strict=True) if clock - tick < at <= clock]
        if left == 0 and waiting:
            left = waiting.pop(0)
        clock += tick
        if left > 0:
            left -= tick
            sent += left == 0
    found = predicted_overlap(sizes, backward=backward, ranks=2, latency=0.0, bandwidth=0.5, algorithm=slow)
    assert found.seconds == clock


def test_too_many_buckets_cost_their_latency() -> None:
    def exposed(count: int) -> float:
        return predicted_overlap([1e7 / count] * count, backward=1e-3, ranks=4, latency=1e-5, bandwidth=1e10).exposed

    assert exposed(2) < exposed(1) < exposed(50)


@pytest.mark.parametrize("buckets", [[], [0.0], [-1.0], [float("nan")]], ids=str)
def test_buckets_that_hold_nothing_are_refused(buckets: list[float]) -> None:
    with pytest.raises(ValueError, match="at least one bucket, each of some bytes"):
        predicted_overlap(buckets, backward=1.0, ranks=2, latency=0.0, bandwidth=1.0)
