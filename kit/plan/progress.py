"""How far the ranks of a schedule get, each taking its actions in order once what they need has come."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass

import numpy as np

from kit.plan.schedule import FORWARD, INPUT, WEIGHT, Action, Kind, Schedule

_PARTS: dict[Kind, int] = {"F": 0, "I": 1, "B": 1, "W": 2}
_KINDS = (FORWARD, INPUT, WEIGHT)


class Numbered:
    """A schedule's actions as numbers, since hashing them would take longer than all the rest.

    rows: of each rank the numbers of its actions; I and B, which give the same to others, have one. own, other: what an
    action needs of its own stage and of the one before or after it, by its number; -1: nothing. count: of all numbers.
    """

    def __init__(self, schedule: Schedule) -> None:
        stages, m = schedule.stages * schedule.copies, schedule.micro_batches
        self._micro_batches = m
        self.count = stages * m * 3
        self.rows = [
            [(stage * m + micro_batch) * 3 + _PARTS[kind] for stage, kind, micro_batch in row] for row in schedule.rows
        ]
        number = np.arange(self.count)
        stage, part = number // (3 * m), number % 3
        before = np.where(stage % schedule.stages == 0, -1, number - 3 * m)
        after = np.where((stage + 1) % schedule.stages == 0, -1, number + 3 * m)
        self.own: list[int] = np.where(part == 0, -1, number - 1).tolist()
        self.other: list[int] = np.select([part == 0, part == 1], [before, after], -1).tolist()

    def action(self, number: int) -> Action:
        """The action of a number; of I and B the I."""
        place, part = divmod(number, 3)
        return Action(place // self._micro_batches, _KINDS[part], place % self._micro_batches)


@dataclass(frozen=True)
class Stuck:
    """A rank that stands before an action for ever, because of what it needs."""

    rank: int
    position: int
    action: Action
    missing: Action  # of what a stage gives back the I: a B would do as well


@dataclass(frozen=True)
class Progress:
    """order: whose turn it is, an entry an action: one order in which all is done that can be."""

    numbered: Numbered
    order: list[int]
    stuck: tuple[Stuck, ...]


def progress(schedule: Schedule) -> Progress:
    """Linear in the number of actions. What runs together begins together: when both have what they need."""
    numbered = Numbered(schedule)
    rows, own, other = numbered.rows, numbered.own, numbered.other
    done = bytearray(numbered.count + 1)
    done[-1] = True  # nothing is needed: that is there
    waiting: defaultdict[int, list[int]] = defaultdict(list)
    order: list[int] = []
    at = [0] * schedule.ranks
    stands: dict[int, int] = {}  # before what, by rank
    ready = deque(range(schedule.ranks))
    while ready:
        rank = ready.popleft()
        row, position = rows[rank], at[rank]
        stands.pop(rank, None)
        while position < len(row):
            end = position + (2 if (rank, position) in schedule.together else 1)
            for number in row[position:end]:
                missing = other[number] if done[own[number]] else own[number]
                if not done[missing]:
                    break
            else:
                for number in row[position:end]:
                    done[number] = True
                    order.append(rank)
                    position += 1
                    if number in waiting:
                        ready.extend(waiting.pop(number))
                continue
            waiting[missing].append(rank)
            stands[rank] = missing
            break
        at[rank] = position
    stuck = (Stuck(rank, at[rank], schedule.rows[rank][at[rank]], numbered.action(n)) for rank, n in stands.items())
    return Progress(numbered, order, tuple(sorted(stuck, key=lambda one: one.rank)))
