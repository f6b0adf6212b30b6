"""A schedule with its messages, in the text form of `torch.distributed.pipelining`: '1SEND_F1', '2RECV_F1'.

`Schedule.text` leaves them out, since they follow from the rest and torch adds its own. Whoever wants to see where they
stand, or has torch run exactly these, reads them here.
"""

from __future__ import annotations

import csv
import io
from collections import Counter

from kit.plan.flaws import flaws
from kit.plan.progress import progress
from kit.plan.schedule import FORWARD, FREES, PASSES_BACK, Action, Schedule


def lowered(schedule: Schedule) -> str:
    """A row a rank; `_load_csv(file, format="compute_comms")` reads it, in torch versions that know REDUCE_GRAD: where
    a stage's gradients are complete, and torch divides them by the number of micro-batches.

    A message is sent as soon as it is made and received in the order of sending, so rows wait for no other reason than
    the schedule's own. ValueError for a schedule that cannot run.
    """
    going = progress(schedule)
    if going.stuck:
        raise ValueError(f"this schedule comes to a halt: {flaws(schedule)[0].sentence}")
    cells: list[list[str]] = [[] for _ in schedule.rows]
    at = [0] * schedule.ranks
    left = Counter(action.stage for row in schedule.rows for action in row if action.kind in FREES)
    for rank in going.order:
        position, row = at[rank], schedule.rows[rank]
        at[rank] += 1
        if (rank, position) in schedule.together:
            continue  # one cell with the next
        first = position - 1 if (rank, position - 1) in schedule.together else position
        actions = row[first : position + 1]
        pair = f"({';'.join(map(str, actions))})OVERLAP_F_B"
        cells[rank].append(pair if len(actions) > 1 else str(actions[0]))
        for action in actions:
            _add_message(schedule, rank, action, cells)
            left[action.stage] -= action.kind in FREES
            if action.kind in FREES and not left[action.stage]:
                cells[rank].append(f"{action.stage}REDUCE_GRAD")
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows(cells)
    return lines.getvalue()


def _add_message(schedule: Schedule, rank: int, action: Action, cells: list[list[str]]) -> None:
    stage, kind, micro_batch = action
    if kind == FORWARD and not schedule.is_last(stage):
        to, letter = stage + 1, "F"
    elif kind in PASSES_BACK and not schedule.is_first(stage):
        to, letter = stage - 1, "B"
    else:
        return
    other = schedule.rank_of[to]
    if other != rank:
        cells[rank].append(f"{stage}SEND_{letter}{micro_batch}")
        cells[other].append(f"{to}RECV_{letter}{micro_batch}")
