"""Proves a schedule: every micro-batch goes forward and backward once at every stage, nothing is used before it is
there, and no rank waits for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from kit.plan.progress import Stuck, progress
from kit.plan.schedule import BACKWARD, FORWARD, FREES, INPUT, KINDS, Action, Schedule


@dataclass(frozen=True)
class Flaw:
    """Why a schedule cannot run. rank and position say where to look; None where nothing stands that should."""

    sentence: str
    rank: int | None = None
    position: int | None = None


def flaws(schedule: Schedule, room: int | None = None) -> tuple[Flaw, ...]:
    """Everything that is wrong with a schedule, what is missing or twice there first; nothing: it can run.

    room: how many activations, each of one micro-batch at one stage, a rank has room for; None: for all.
    """
    found = [*_strangers(schedule)] or [*_moved_house(schedule), *_counts(schedule)]
    if not found:
        found = [*_waits(schedule)]
    if room is not None:
        found += _too_full(schedule, room)
    return tuple(found)


def most_held(schedule: Schedule, rank: int) -> int:
    """The most activations a rank holds at any time: from the forward pass until B, or W, is over."""
    return max((held for _, held in _held(schedule, rank)), default=0)


def _held(schedule: Schedule, rank: int) -> Iterator[tuple[int, int]]:
    held = 0
    for position, action in enumerate(schedule.rows[rank]):
        held += action.kind == FORWARD
        yield position, held
        held -= action.kind in FREES


def _strangers(schedule: Schedule) -> Iterator[Flaw]:
    stages, micro_batches = schedule.stages * schedule.copies, schedule.micro_batches
    for rank, row in enumerate(schedule.rows):
        for position, action in enumerate(row):
            if not 0 <= action.stage < stages:
                yield Flaw(f"{action}: there is no stage {action.stage}, only 0 to {stages - 1}", rank, position)
            elif not 0 <= action.micro_batch < micro_batches:
                there_are = f"only 0 to {micro_batches - 1}"
                yield Flaw(f"{action}: there is no micro-batch {action.micro_batch}, {there_are}", rank, position)


def _moved_house(schedule: Schedule) -> Iterator[Flaw]:
    """Weights stay where they are."""
    for rank, row in enumerate(schedule.rows):
        for position, action in enumerate(row):
            home = schedule.rank_of[action.stage]
            if home != rank:
                yield Flaw(f"{action} is on rank {rank}, but stage {action.stage} is on rank {home}", rank, position)
                break


def _counts(schedule: Schedule) -> Iterator[Flaw]:
    where = {(action, rank): position for rank, row in enumerate(schedule.rows) for position, action in enumerate(row)}
    count = Counter(action for row in schedule.rows for action in row)
    last = {action: (rank, position) for (action, rank), position in where.items()}
    for action, times in count.items():
        if times > 1:
            yield Flaw(f"{action} is there {times} times", *last[action])
    for micro_batch in range(schedule.micro_batches):
        for copy in _copies_taken(schedule, count, micro_batch):
            for stage in range(copy * schedule.stages, (copy + 1) * schedule.stages):
                forward, whole, part, weight = (Action(stage, kind, micro_batch) for kind in KINDS)
                if forward not in count:
                    yield Flaw(f"micro-batch {micro_batch} never goes forward through stage {stage}: no {forward}")
                if whole in count and (part in count or weight in count):
                    twice = part if part in count else weight
                    yield Flaw(f"{whole} is all of the backward pass, {twice} a part: leave one out", *last[twice])
                elif whole not in count and part not in count and weight not in count:
                    yield Flaw(f"micro-batch {micro_batch} never comes back through stage {stage}: no {whole}")
                elif whole not in count and weight not in count:
                    yield Flaw(f"{part} has no {weight}: the gradient of its weights is lost", *last[part])
                elif whole not in count and part not in count:
                    yield Flaw(f"{weight} has no {part}, which begins the backward pass", *last[weight])


def _copies_taken(schedule: Schedule, count: Counter[Action], micro_batch: int) -> list[int]:
    """Through which copies of the model a micro-batch goes: it has to go through one."""
    taken = [
        copy
        for copy in range(schedule.copies)
        if any(
            Action(stage, FORWARD, micro_batch) in count
            for stage in range(copy * schedule.stages, (copy + 1) * schedule.stages)
        )
    ]
    return taken or [0]


def _waits(schedule: Schedule) -> Iterator[Flaw]:
    """First ranks that have put two actions of their own the wrong way round: the others only wait for them."""
    stuck = progress(schedule).stuck
    others = {one.rank: one for one in stuck}
    for one in sorted(stuck, key=lambda one: schedule.rank_of.get(one.missing.stage) != one.rank):
        yield Flaw(_why(schedule, one, others), one.rank, one.position)


def _why(schedule: Schedule, stuck: Stuck, others: dict[int, Stuck]) -> str:
    action, missing = stuck.action, stuck.missing
    if missing.stage == action.stage:
        there = _found(schedule, missing)
        return f"{action} comes before {there}, which it needs"
    what = "activation" if missing.kind == FORWARD else "gradient"
    sentence = (
        f"{action}: stage {action.stage} needs the {what} of micro-batch {action.micro_batch} that stage "
        f"{missing.stage} has not sent"
    )
    other = others.get(schedule.rank_of[missing.stage])
    if other is None or other is stuck:
        later = f": {_found(schedule, missing)} comes later on the same rank" if other is stuck else ""
        return sentence + later
    return f"{sentence}, because rank {other.rank} waits before {other.action}"


def _found(schedule: Schedule, action: Action) -> Action:
    """As it is called in this schedule: what a stage is given back is an I or a B."""
    whole = Action(action.stage, BACKWARD, action.micro_batch)
    return whole if action.kind == INPUT and any(whole in row for row in schedule.rows) else action


def _too_full(schedule: Schedule, room: int) -> Iterator[Flaw]:
    for rank in range(schedule.ranks):
        for position, held in _held(schedule, rank):
            if held > room:
                action = schedule.rows[rank][position]
                yield Flaw(
                    f"{action} is activation number {held} on rank {rank}, which has room for {room}", rank, position
                )
                break
