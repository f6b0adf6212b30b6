"""Intervals of time, as (from, to) in whole nanoseconds."""

from __future__ import annotations

from collections.abc import Iterable


def union(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same moments as intervals that neither overlap nor touch, in order."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def outside(intervals: list[tuple[int, int]], taken: list[tuple[int, int]], first: int = 0) -> list[tuple[int, int]]:
    """The parts of some intervals that others, from the first that matters, leave free. Both disjoint and sorted."""
    free = []
    for start, end in intervals:
        while first < len(taken) and taken[first][1] <= start:
            first += 1
        index = first
        while index < len(taken) and taken[index][0] < end:
            if taken[index][0] > start:
                free.append((start, taken[index][0]))
            start = max(start, taken[index][1])
            index += 1
        if start < end:
            free.append((start, end))
    return free
