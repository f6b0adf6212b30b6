"""Where every action of a schedule stands in time, whether the schedule can run or not.

What can run is simulated. Ranks that come to a halt leave the rest of their rows behind: it is set after the halt, in
its order, so that it can still be seen and moved.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kit.cost.pipeline import Timeline, Times, simulated
from kit.plan.progress import progress
from kit.plan.schedule import PASSES_BACK, Action, Schedule

if TYPE_CHECKING:
    from kit.cost.pipeline import Moments
    from kit.plan.progress import Stuck


@dataclass(frozen=True, eq=False)
class Layout:
    """line: what runs, as far as the ranks get. runs: how many actions that is, by rank. began, ended: of all actions.

    halt: when the last rank has come to a halt; None: all run to their end. needs: of a rank that stands, what it
    waits for.
    """

    schedule: Schedule
    line: Timeline
    runs: tuple[int, ...]
    began: Moments
    ended: Moments
    halt: float | None
    needs: dict[int, Action]

    @property
    def idle_share(self) -> float | None:
        """None where not even one action runs to its end."""
        return self.line.idle_share if self.line.seconds else None


def laid_out(schedule: Schedule, times: Times) -> Layout:
    """Linear in the number of actions."""
    known = tuple(_before_stranger(schedule, rank) for rank in range(schedule.ranks))
    goes = _cut(schedule, known)
    stuck: tuple[Stuck, ...] = progress(goes).stuck
    stands = {one.rank: one.position for one in stuck}
    runs = tuple(stands.get(rank, length) for rank, length in enumerate(known))
    line = simulated(_cut(goes, runs) if stands else goes, times)
    if runs == tuple(map(len, schedule.rows)):
        return Layout(schedule, line, runs, line.began, line.ended, None, {})
    began, ended = list(line.began), list(line.ended)
    for rank, row in enumerate(schedule.rows):
        clock = line.seconds
        for action in row[runs[rank] :]:
            began[rank] += (clock,)
            clock += times.of(action)
            ended[rank] += (clock,)
    needs = {one.rank: one.missing for one in stuck}
    return Layout(schedule, line, runs, tuple(began), tuple(ended), line.seconds, needs)


def beginning(line: Timeline, most: int) -> Timeline:
    """The first `most` actions of a timeline, or fewer by those that begin together with the next."""
    moments = sorted(moment for row in line.began for moment in row)
    if len(moments) <= most:
        return line
    lengths = tuple(bisect_left(row, moments[most]) for row in line.began)
    began, ended = (tuple(row[:n] for row, n in zip(rows, lengths, strict=True)) for rows in (line.began, line.ended))
    return Timeline(_cut(line.schedule, lengths), began, ended)


def needed(schedule: Schedule, action: Action) -> list[Action]:
    """What an action uses, of its own stage and of the one before or after it; of a backward pass both its names."""
    stage, kind, micro_batch = action
    if kind == "F":
        return [] if schedule.is_first(stage) else [Action(stage - 1, "F", micro_batch)]
    if kind in PASSES_BACK:
        after = [] if schedule.is_last(stage) else [Action(stage + 1, back, micro_batch) for back in ("B", "I")]
        return [Action(stage, "F", micro_batch), *after]
    return [Action(stage, "I", micro_batch)]


def _before_stranger(schedule: Schedule, rank: int) -> int:
    """How many actions come before the first one of a stage or a micro-batch that does not exist."""
    stages, micro_batches = schedule.stages * schedule.copies, schedule.micro_batches
    row = schedule.rows[rank]
    strange = (i for i, one in enumerate(row) if one.stage >= stages or one.micro_batch >= micro_batches)
    return next(strange, len(row))


def _cut(schedule: Schedule, lengths: tuple[int, ...]) -> Schedule:
    """The first actions of each row."""
    rows = tuple(row[:length] for row, length in zip(schedule.rows, lengths, strict=True))
    whole = frozenset((rank, position) for rank, position in schedule.together if position + 1 < lengths[rank])
    return replace(schedule, rows=rows, together=whole)
