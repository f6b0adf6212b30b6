"""Schedules with one stage a rank as a person writes them by hand: of each rank the row ['F0', 'F1', 'B0', 'B1']."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from kit.plan.schedule import Action, Kind, Schedule

_CELL = re.compile(r"([FBIW])(\d+)")


def from_rows(rows: Sequence[Sequence[str]], name: str = "yours", micro_batches: int | None = None) -> Schedule:
    """The schedule in which rank r computes stage r and takes the actions of rows[r]: kind and micro-batch, 'F0'.

    micro_batches: None: as many as are named. ValueError for what is no list of actions, with its row.
    """
    made = [tuple(_action(rank, cell) for cell in _cells(rank, row)) for rank, row in enumerate(rows)]
    named = max((action.micro_batch + 1 for row in made for action in row), default=0)
    if not (micro_batches or named):
        raise ValueError("there is no action in it: a row for each rank, actions such as 'F0'")
    return Schedule(name, tuple(made), len(made), named if micro_batches is None else micro_batches)


def back_to_back(schedule: Schedule, steps: int = 2) -> Schedule:
    """So many steps of a schedule in one: each rank begins the next as soon as it is through, without a barrier."""
    m = schedule.micro_batches
    rows = tuple(
        tuple(action._replace(micro_batch=action.micro_batch + step * m) for step in range(steps) for action in row)
        for row in schedule.rows
    )
    lengths = [len(row) for row in schedule.rows]
    together = frozenset((r, at + step * lengths[r]) for r, at in schedule.together for step in range(steps))
    name = f"{schedule.name}, {steps} steps"
    return replace(schedule, name=name, rows=rows, micro_batches=m * steps, together=together)


def _cells(rank: int, row: object) -> Sequence[object]:
    if isinstance(row, list | tuple):
        return row
    raise ValueError(f"rank {rank}'s row is {_short(row)}, where a list such as ['F0', 'F1', 'B0', 'B1'] is asked for")


def _action(rank: int, cell: object) -> Action:
    found = _CELL.fullmatch(cell) if isinstance(cell, str) else None
    if found is None:
        raise ValueError(f"rank {rank}'s row holds {_short(cell)}: an action is kind and micro-batch, 'F0' or 'B0'")
    return Action(rank, cast("Kind", found[1]), int(found[2]))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
