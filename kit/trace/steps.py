"""Where the training steps of a run begin and end, from the passes that were seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kit.trace.facts import Pass


def steps(passes: Sequence[Pass]) -> list[tuple[int, int]]:
    """(from, to) of each training step of one rank, in nanoseconds of its clock.

    A step goes from the first forward pass after the step before to the end of the optimizer's step; several
    micro-batches are one. Where no optimizer of torch stepped, it ends with the last backward pass before the next
    forward pass.
    """
    by_optimizer = any(one.name == "step" for one in passes)
    found: list[tuple[int, int]] = []
    start, end = None, 0
    for one in sorted(passes, key=lambda one: one.start):
        if one.name == "forward" and start is not None and not by_optimizer and end > start:
            found.append((start, end))
            start = None
        if one.name == "forward" and start is None:
            start, end = one.start, one.start
        if start is None:
            continue
        end = max(end, one.end if one.name != "forward" else end)
        if one.name == "step":
            found.append((start, end))
            start = None
    if start is not None and not by_optimizer and end > start:
        found.append((start, end))
    return found


def the_step(passes: Sequence[Pass], number: int, rank: int) -> tuple[int, int]:
    """One of them, counted from 0 or, negative, from the last. Raises ValueError for one that there is not."""
    found = steps(passes)
    if not -len(found) <= number < len(found):
        there = f"{len(found)}, counted from 0" if found else "none: no module was called, or nothing went backward"
        raise ValueError(f"there is no training step {number} on rank {rank}: the run has {there}")
    return found[number]
