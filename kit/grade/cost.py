"""Is it fast enough? Counts only: machines differ and are busy, so a check has no stopwatch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kit.grade.words import counted, line

if TYPE_CHECKING:
    from kit.grade.exercise import Case, Rule, Run
    from kit.trace.facts import Operation


def rounds_at_most(limit: Callable[[Case], int], reason: str) -> Rule:
    """The longest chain of messages, one after the other, has no more than `limit(case)` links.

    A rank sends one message at a time, and nothing before what it hands on has arrived; each link costs a latency.
    """

    def rule(run: Run) -> str | None:
        depths = depth(run)
        if not depths:
            return None
        (rank, index), longest = max(depths.items(), key=lambda item: item[1])
        enough = limit(run.case)
        if longest <= enough:
            return None
        where = line(run.trace.ranks[rank].operations[index], run)
        are = "is" if enough == 1 else "are"
        return (
            f"{counted(longest, 'round')} where {enough} {are} enough; the last message leaves rank {rank}, from"
            f" {where}: {reason}"
        )

    return rule


def depth(run: Run) -> dict[tuple[int, int], int]:
    """For each send, as (rank, index of the operation): which round it is in, from 1."""
    inbox: dict[str, tuple[int, int]] = {}  # match of a message: its send
    for part in run.trace.ranks:
        for operation in part.operations:
            if operation.name == "send":
                inbox[operation.match] = (part.rank, operation.index)
    found: dict[tuple[int, int], int] = {}
    sends = sorted((o for part in run.trace.ranks for o in part.operations if o.name == "send"), key=lambda o: o.issued)
    for send in sends:  # whatever a send depends on was issued before it
        before = [o for o in run.trace.ranks[send.rank].operations if o.index < send.index]
        chain = [found[(send.rank, o.index)] for o in before if o.name == "send"]
        chain += [
            found.get(inbox[o.match], 0) for o in before if o.name == "recv" and o.match in inbox and _arrived(o, send)
        ]
        found[(send.rank, send.index)] = 1 + max(chain, default=0)
    return found


def _arrived(receive: Operation, send: Operation) -> bool:
    """Whether the rank's own code had the message in hand when it issued the send."""
    done = receive.waits[-1][1] if receive.waits else receive.ended
    return done is not None and done <= send.issued
