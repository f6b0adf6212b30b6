"""Was no more sent than needed? Rules about messages, wire bytes and collectives, read off the trace of a run.

Each function makes a `Rule`: None, or a sentence that names the rank, the source line and the difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from kit.grade.words import counted, joined, line, size, the_ranks
from kit.trace.text import POINT_TO_POINT

if TYPE_CHECKING:
    from kit.grade.exercise import Case, Rule, Run
    from kit.trace.facts import Operation


def sends(run: Run, rank: int) -> list[Operation]:
    """A rank's sends, in the order of issue."""
    return [operation for operation in run.trace.ranks[rank].operations if operation.name == "send"]


def collectives(run: Run, rank: int) -> list[Operation]:
    """A rank's collectives, in the order of issue."""
    return [operation for operation in run.trace.ranks[rank].operations if operation.name not in POINT_TO_POINT]


def only(names: tuple[str, ...], instead: str) -> Rule:
    """Only these operations may be used. instead: what the exercise asks for, 'send and receive'."""

    def rule(run: Run) -> str | None:
        for part in run.trace.ranks:
            for operation in part.operations:
                if operation.name not in names:
                    return (
                        f"rank {part.rank} called the built-in {operation.name}, from"
                        f" {line(operation, run.trace, run.file)}: this exercise is to be done with {instead}"
                    )
        return None

    return rule


def silent(run: Run) -> str | None:
    """A rule: nothing at all is communicated."""
    for part in run.trace.ranks:
        if part.operations:
            first = part.operations[0]
            return (
                f"rank {part.rank} called {first.name}, from {line(first, run.trace, run.file)}: "
                "no communication is needed, each rank can work this out from its own number"
            )
    return None


def bytes_per_rank(
    limit: Callable[[Case, int], int], largest: Callable[[Case], int], reason: str, otherwise: str
) -> Rule:
    """No rank sends more than `limit(case, rank)` wire bytes.

    reason: said when a message is larger than `largest(case)` bytes; otherwise: when there are too many of them.
    """

    def rule(run: Run) -> str | None:
        for part in run.trace.ranks:
            sent = sends(run, part.rank)
            total, enough = sum(operation.payload for operation in sent), limit(run.case, part.rank)
            if total > enough:
                worst = max(sent, key=lambda operation: operation.payload)
                why = reason if worst.payload > largest(run.case) else otherwise
                where = line(worst, run.trace, run.file)
                return f"rank {part.rank} sent {size(total)} where {amount(enough, total)} enough, from {where}: {why}"
        return None

    return rule


def messages_per_rank(limit: Callable[[Case, int], int], reason: str) -> Rule:
    """No rank sends more than `limit(case, rank)` messages."""

    def rule(run: Run) -> str | None:
        for part in run.trace.ranks:
            sent, enough = sends(run, part.rank), limit(run.case, part.rank)
            if len(sent) > enough:
                where = line(sent[enough], run.trace, run.file)
                return (
                    f"rank {part.rank} sent {counted(len(sent), 'message')} where {are(enough)} enough, from {where}:"
                    f" {reason}"
                )
        return None

    return rule


def messages_in_all(limit: Callable[[Case], int], reason: str) -> Rule:
    """All ranks together send no more than `limit(case)` messages; the rank that sent most is named."""

    def rule(run: Run) -> str | None:
        counts = {part.rank: sends(run, part.rank) for part in run.trace.ranks}
        total, enough = sum(map(len, counts.values())), limit(run.case)
        if total <= enough:
            return None
        most = max(counts, key=lambda rank: len(counts[rank]))
        where = line(counts[most][-1], run.trace, run.file)
        return (
            f"the ranks sent {counted(total, 'message')} where {are(enough)} enough; rank {most} alone sent"
            f" {len(counts[most])}, from {where}: {reason}"
        )

    return rule


def received_once(run: Run) -> str | None:
    """A rule: no rank receives more often than once."""
    for part in run.trace.ranks:
        received = [operation for operation in part.operations if operation.name == "recv"]
        if len(received) > 1:
            return (
                f"rank {part.rank} received {len(received)} times, from {line(received[1], run.trace, run.file)}: "
                "it has all it needs after the first"
            )
    return None


def to_the_right(run: Run) -> str | None:
    """A rule: every rank sends to its right neighbour only."""
    n = run.case.world
    for part in run.trace.ranks:
        peers = sorted({operation.peer for operation in sends(run, part.rank) if operation.peer is not None})
        wrong = [operation for operation in sends(run, part.rank) if operation.peer != (part.rank + 1) % n]
        if wrong:
            return (
                f"rank {part.rank} sent to {the_ranks(peers)}, from {line(wrong[0], run.trace, run.file)}: "
                f"in this ring it sends to its right neighbour only, rank {(part.rank + 1) % n}"
            )
    return None


def calls(wanted: tuple[str, ...], reason: str) -> Rule:
    """Every rank calls exactly these collectives, in this order."""

    def rule(run: Run) -> str | None:
        for part in run.trace.ranks:
            made = collectives(run, part.rank)
            names = [operation.name for operation in made]
            if names != list(wanted):
                where = f", from {line(made[-1], run.trace, run.file)}" if made else ""
                return (
                    f"rank {part.rank} called {joined(names) if names else 'no collective'}{where}: {joined(wanted)}"
                    f" are asked for; {reason}"
                )
        return None

    return rule


def collectives_at_most(limit: int, reason: str) -> Rule:
    """No rank calls more than `limit` collectives."""

    def rule(run: Run) -> str | None:
        for part in run.trace.ranks:
            made = collectives(run, part.rank)
            if len(made) > limit:
                named = joined(f"{times} x {name}" for name, times in Counter(o.name for o in made).items())
                where = line(made[limit], run.trace, run.file)
                return (
                    f"rank {part.rank} called {counted(len(made), 'collective')} ({named}) where {are(limit)} enough,"
                    f" from {where}: {reason}"
                )
        return None

    return rule


def payload_at_most(limit: Callable[[Case], int], reason: str) -> Rule:
    """No single collective is given more than `limit(case)` bytes (the whole buffer)."""

    def rule(run: Run) -> str | None:
        for part in run.trace.ranks:
            for operation in collectives(run, part.rank):
                if operation.payload > limit(run.case):
                    where = line(operation, run.trace, run.file)
                    enough = amount(limit(run.case), operation.payload)
                    return (
                        f"rank {part.rank} gave {operation.name} {size(operation.payload)} where {enough} enough, from"
                        f" {where}: {reason}"
                    )
        return None

    return rule


def are(number: int) -> str:
    return f"{number} {'is' if number == 1 else 'are'}"


def amount(nbytes: int, beside: int) -> str:
    """'48 are' beside another number of bytes, '6.0 kB are' beside kilobytes."""
    return are(nbytes) if beside < 1000 else f"{size(nbytes)} are"
