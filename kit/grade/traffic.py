"""Was no more sent than needed? Rules about messages, wire bytes and collectives, read off the trace of a run.

Each is or makes a `Rule`: None, or a sentence that names the rank, the source line and the difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kit.grade.words import counted, joined, line, size
from kit.trace.text import POINT_TO_POINT, named

if TYPE_CHECKING:
    from kit.grade.exercise import Case, Rule, Run
    from kit.trace.facts import Operation, RankTrace


def on_each_rank(look: Callable[[Run, RankTrace], str | None]) -> Rule:
    """A rule about every rank by itself: the first one that is wrong is told of."""
    return lambda run: next((said for part in run.trace.ranks if (said := look(run, part))), None)


def sends(part: RankTrace) -> list[Operation]:
    """A rank's sends, in the order of issue."""
    return [operation for operation in part.operations if operation.name == "send"]


def collectives(part: RankTrace) -> list[Operation]:
    """A rank's collectives, in the order of issue."""
    return [operation for operation in part.operations if operation.name not in POINT_TO_POINT]


UNTIL_WAITED = {
    "send": "`wait()` says when the tensor has gone; until then it must stay as it is, and may not have left",
    "recv": "until `wait()` has returned the tensor holds anything",
}


@on_each_rank
def never_waited(run: Run, part: RankTrace) -> str | None:
    """A rule for every exercise: no operation is left under way."""
    left = next((one for one in part.operations if one.ended is None and not one.waits), None)
    if left is None:
        return None
    why = UNTIL_WAITED.get(
        left.name, "until `wait()` the tensor holds anything, and on a busy machine not yet the result"
    )
    return f"rank {part.rank} never waited for the {left.name} it began, from {line(left, run)}: {why}"


def beyond_the_group(run: Run, members: tuple[int, ...]) -> str | None:
    """The first operation among other ranks than the members of the group."""
    other = next(
        (
            one
            for part in run.trace.ranks
            for one in part.operations
            if one.name != "new_group" and one.ranks != members
        ),
        None,
    )
    if other is None:
        return None
    return (
        f"rank {other.rank} called {other.name}, from {line(other, run)}, among {named(other.ranks)}: pass group=group"
        " on to every call of torch.distributed"
    )


def only(names: tuple[str, ...], instead: str) -> Rule:
    """Only these operations may be used. instead: what the exercise asks for, 'send and receive'."""

    @on_each_rank
    def rule(run: Run, part: RankTrace) -> str | None:
        other = next((operation for operation in part.operations if operation.name not in names), None)
        if other is None:
            return None
        return (
            f"rank {part.rank} called the built-in {other.name}, from {line(other, run)}: this exercise is to be done"
            f" with {instead}"
        )

    return rule


@on_each_rank
def silent(run: Run, part: RankTrace) -> str | None:
    """A rule: nothing at all is communicated."""
    if not part.operations:
        return None
    first = part.operations[0]
    return (
        f"rank {part.rank} called {first.name}, from {line(first, run)}: no communication is needed, each rank can work"
        " this out from its own number"
    )


def bytes_per_rank(
    limit: Callable[[Case, int], int], largest: Callable[[Case], int], reason: str, otherwise: str
) -> Rule:
    """No rank sends more than `limit(case, rank)` wire bytes.

    reason: said when a message is larger than `largest(case)` bytes; otherwise: when there are too many of them.
    """

    @on_each_rank
    def rule(run: Run, part: RankTrace) -> str | None:
        sent, enough = sends(part), limit(run.case, part.rank)
        total = sum(operation.payload for operation in sent)
        if total <= enough:
            return None
        worst = max(sent, key=lambda operation: operation.payload)
        why = reason if worst.payload > largest(run.case) else otherwise
        return (
            f"rank {part.rank} sent {size(total)} where {amount(enough, total)} enough, from {line(worst, run)}: {why}"
        )

    return rule


def messages_per_rank(limit: Callable[[Case, int], int], reason: str) -> Rule:
    """No rank sends more than `limit(case, rank)` messages."""

    @on_each_rank
    def rule(run: Run, part: RankTrace) -> str | None:
        sent, enough = sends(part), limit(run.case, part.rank)
        return _too_many(run, f"rank {part.rank} sent {counted(len(sent), 'message')}", sent, enough, reason)

    return rule


def messages_in_all(limit: Callable[[Case], int], reason: str) -> Rule:
    """All ranks together send no more than `limit(case)` messages; the rank that sent most is named."""

    def rule(run: Run) -> str | None:
        by_rank = [sends(part) for part in run.trace.ranks]
        total, enough = sum(map(len, by_rank)), limit(run.case)
        if total <= enough:
            return None
        rank, most = max(enumerate(by_rank), key=lambda found: len(found[1]))
        return (
            f"the ranks sent {counted(total, 'message')} where {are(enough)} enough; rank {rank} alone sent"
            f" {len(most)}, from {line(most[-1], run)}: {reason}"
        )

    return rule


@on_each_rank
def received_once(run: Run, part: RankTrace) -> str | None:
    """A rule: no rank receives more often than once."""
    received = [operation for operation in part.operations if operation.name == "recv"]
    if len(received) <= 1:
        return None
    return (
        f"rank {part.rank} received {len(received)} times, from {line(received[1], run)}: it has all it needs after the"
        " first"
    )


@on_each_rank
def to_the_right(run: Run, part: RankTrace) -> str | None:
    """A rule: every rank sends to its right neighbour only."""
    right = (part.rank + 1) % run.case.world
    wrong = next((operation for operation in sends(part) if operation.peer != right), None)
    if wrong is None:
        return None
    return (
        f"rank {part.rank} sent to {named(send.peer for send in sends(part) if send.peer is not None)}, from"
        f" {line(wrong, run)}: in this ring it sends to its right neighbour only, rank {right}"
    )


def calls(wanted: tuple[str, ...], reason: str) -> Rule:
    """Every rank calls exactly these collectives, in this order."""

    @on_each_rank
    def rule(run: Run, part: RankTrace) -> str | None:
        made = collectives(part)
        names = [operation.name for operation in made]
        if names == list(wanted):
            return None
        told = f"{joined(names)}, from {line(made[-1], run)}" if made else "no collective"
        return f"rank {part.rank} called {told}: {joined(wanted)} are asked for; {reason}"

    return rule


def collectives_at_most(
    limit: int | Callable[[Case], int], reason: str, instead: Callable[[Case, float], str] | None = None
) -> Rule:
    """No rank calls more than `limit` (of the case) collectives.

    instead: what `instead(case, made / enough)` says, where it says something, takes the place of `reason`.
    """

    @on_each_rank
    def rule(run: Run, part: RankTrace) -> str | None:
        made, enough = collectives(part), limit if isinstance(limit, int) else limit(run.case)
        names = joined(f"{times} x {name}" for name, times in Counter(one.name for one in made).items())
        told = f"rank {part.rank} called {counted(len(made), 'collective')} ({names})"
        why = (instead(run.case, len(made) / enough) if instead else "") or reason
        return _too_many(run, told, made, enough, why)

    return rule


def payload_at_most(limit: Callable[[Case], int], reason: str) -> Rule:
    """No single collective is given more than `limit(case)` bytes (the whole buffer)."""

    @on_each_rank
    def rule(run: Run, part: RankTrace) -> str | None:
        enough = limit(run.case)
        large = next((operation for operation in collectives(part) if operation.payload > enough), None)
        if large is None:
            return None
        return (
            f"rank {part.rank} gave {large.name} {size(large.payload)} where {amount(enough, large.payload)} enough,"
            f" from {line(large, run)}: {reason}"
        )

    return rule


def payload_in_all(limit: Callable[[Case], int], reason: str) -> Rule:
    """No rank gives its collectives more than `limit(case)` bytes in all."""

    @on_each_rank
    def rule(run: Run, part: RankTrace) -> str | None:
        made, enough = collectives(part), limit(run.case)
        total = sum(operation.payload for operation in made)
        if total <= enough:
            return None
        largest = max(made, key=lambda operation: operation.payload)
        return (
            f"rank {part.rank} gave its collectives {size(total)} where {amount(enough, total)} enough, from"
            f" {line(largest, run)}: {reason}"
        )

    return rule


def _too_many(run: Run, told: str, made: Sequence[Operation], enough: int, reason: str) -> str | None:
    """A sentence where more operations were made than are enough: the first that is too many is pointed at."""
    if len(made) <= enough:
        return None
    return f"{told} where {are(enough)} enough, from {line(made[enough], run)}: {reason}"


def are(number: int) -> str:
    return f"{number} {'is' if number == 1 else 'are'}"


def amount(nbytes: int, beside: int) -> str:
    """'48 are' beside another number of bytes, '6.0 kB are' beside kilobytes."""
    return are(nbytes) if beside < 1000 else f"{size(nbytes)} are"
