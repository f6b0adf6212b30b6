"""Putting together what belongs together: the parts that ranks play in one communication."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kit.trace.asking import once
from kit.trace.sentences import ANY, canonical, is_message

if TYPE_CHECKING:
    from kit.trace.facts import Operation, Trace


def by_match(trace: Trace) -> dict[str, list[Operation]]:
    """match -> its operations in rank order; matches in the order in which they were first issued. Not to be changed.

    A receive from any source that has met no sender yet stands alone, under a key of its own.
    """
    return once(trace, _by_match)


def _by_match(trace: Trace) -> dict[str, list[Operation]]:
    operations = sorted(
        (op for rank in trace.ranks for op in rank.operations), key=lambda op: (op.issued, op.rank, op.index)
    )
    groups: dict[str, list[Operation]] = {}
    for op in operations:
        alone = not op.match or op.peer == ANY
        groups.setdefault(f"?/{op.rank}/{op.index}" if alone else op.match, []).append(op)
    for entries in groups.values():
        entries.sort(key=lambda op: (op.rank, op.index))
    return groups


def expected_parts(operation: Operation) -> int:
    """How many parts make the communication whole: two for a message, one per member for a collective."""
    return 2 if is_message(operation.name) else len(operation.ranks)


def is_complete(entries: Sequence[Operation]) -> bool:
    """Whether every participant has posted its part."""
    return len(entries) >= expected_parts(entries[0])


def missing_ranks(entries: Sequence[Operation]) -> tuple[int, ...]:
    """The participants that have not posted their part; for a receive from any source that is any other member."""
    if is_complete(entries):
        return ()
    first = entries[0]
    if is_message(first.name) and first.peer is not None and first.peer != ANY:
        return (first.peer,)
    present = {op.rank for op in entries}
    return tuple(rank for rank in first.ranks if rank not in present)


def moved(entries: Sequence[Operation]) -> bool:
    """Whether data moved: all parts are there, or the record says that it began."""
    return any(op.began is not None or op.ended is not None for op in entries) or (
        is_complete(entries) and not any(op.error for op in entries)
    )


def send_and_receive(entries: Sequence[Operation]) -> tuple[Operation | None, Operation | None]:
    """The two parts of a message; None for one that is missing."""
    sends = [op for op in entries if canonical(op.name) == "send"]
    receives = [op for op in entries if canonical(op.name) == "recv"]
    return (sends[0] if sends else None), (receives[0] if receives else None)
