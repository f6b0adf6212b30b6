"""Proving that ranks wait for ever.

A rank is *alive* when it can still do something: it is paused, running or stopped (a person can let it go on), or it
waits and everybody it waits for is alive. That is the least fixpoint of a monotone rule, so whoever is left over waits
for a rank that has ended or for a circle of ranks that wait themselves: no motion can free it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kit.trace.facts import ENDED, Operation, RankState
from kit.trace.match import tags_differ
from kit.trace.text import awaited, listed, named


def stuck(states: Sequence[RankState], missing: Mapping[int, Sequence[int]]) -> frozenset[int]:
    """The ranks that can never go on.

    states: all ranks, indexed by rank. missing: for each waiting rank, the participants of the operation it waits in
    that have not posted their part; a single one of them would free a rank that waits in 'recv from any rank'.
    """
    phases = {state.rank: state for state in states}
    alive = {rank for rank, state in phases.items() if state.phase in ("paused", "running", "stopped")}
    waiting = {rank for rank, state in phases.items() if state.phase == "waiting"}
    grew = True
    while grew:
        grew = False
        for rank in waiting - alive:
            comes = [other in alive or other not in phases for other in missing.get(rank, ())]
            one_is_enough = (phases[rank].operation or "").endswith("from any rank")
            if not comes or (any(comes) if one_is_enough else all(comes)):
                alive.add(rank)
                grew = True
    return frozenset(waiting - alive)


def deadlock(
    states: Sequence[RankState], missing: Mapping[int, Sequence[int]], alone: Sequence[Operation] = ()
) -> str | None:
    """The sentence that names a provable deadlock, or None while every waiting rank can still be freed.

    Arguments as for `stuck`; alone: messages that have met no partner, of which tags may be the reason.
    'Deadlock: ranks 0, 2, 3 wait in all_reduce (line 6); rank 1 finished without it.'
    """
    caught = stuck(states, missing)
    if not caught:
        return None
    phases = {state.rank: state for state in states}
    waiting = [phases[rank] for rank in sorted(caught)]
    needed = {other for rank in caught for other in missing.get(rank, ())}
    causes: dict[str, list[int]] = {}
    for rank in sorted(needed):
        if rank in phases and phases[rank].phase in ENDED:
            causes.setdefault(ENDED[phases[rank].phase], []).append(rank)
    tags = next(filter(None, (tags_differ([op], alone) for op in alone if op.rank in caught)), None)
    circle = None if causes else _circle(caught, missing)
    who = ", ".join(_groups(waiting, missing, name_missing=not causes))
    if tags is not None:
        return f"Deadlock: {who}. {tags[0].upper()}{tags[1:]}"
    if circle is None:
        return f"Deadlock: {who}; {', '.join(f'{listed(ranks)} {what}' for what, ranks in causes.items())}."
    if len(circle) == 1 and len(caught) == 1:
        return f"Deadlock: {who}: it waits for itself."
    if set(circle) == caught:
        return f"Deadlock: {who}: each waits for the {'other' if len(circle) == 2 else 'next'}."
    if len(circle) == 2:
        return f"Deadlock: {who}: {named(circle)} wait for each other."
    links = ", ".join(f"{a} for {b}" for a, b in zip(circle, circle[1:] + circle[:1], strict=True))
    return f"Deadlock: {who}: ranks wait in a circle, {links}."


def _groups(waiting: Sequence[RankState], missing: Mapping[int, Sequence[int]], name_missing: bool) -> list[str]:
    """'ranks 0, 2 wait in all_reduce (line 6)': ranks in the same call share one text; at most six texts."""
    several_files = len({state.place.file for state in waiting if state.place}) > 1
    groups: dict[tuple[str, str], list[int]] = {}
    for state in waiting:
        operation = state.operation or "an operation"
        if name_missing or operation in ("send", "recv"):
            operation = awaited(operation, missing[state.rank])
        line = f" ({state.place.words(several_files)})" if state.place else ""
        groups.setdefault((operation, line), []).append(state.rank)
    texts = [
        f"{listed(ranks)} {'waits' if len(ranks) == 1 else 'wait'} in {operation}{line}"
        for (operation, line), ranks in groups.items()
    ]
    if len(texts) > 6:
        rest = [rank for ranks in list(groups.values())[5:] for rank in ranks]
        texts = [*texts[:5], f"{listed(rest)} likewise"]
    return texts


def _circle(caught: Collection[int], missing: Mapping[int, Sequence[int]]) -> list[int]:
    """A circle of waits: from the lowest caught rank, follow one caught rank that it misses, until one comes again.

    Only called when no caught rank misses an ended one, so each of them misses another caught rank.
    """
    path = [min(caught)]
    while True:
        following = min(rank for rank in missing[path[-1]] if rank in caught)
        if following in path:
            circle = path[path.index(following) :]
            start = circle.index(min(circle))
            return circle[start:] + circle[:start]
        path.append(following)
