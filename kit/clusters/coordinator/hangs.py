"""Judging a recorded run that hangs, and a rank's death, from the operations that the ranks had issued."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from kit.trace.facts import Operation, RankState
from kit.trace.match import disagreement, is_complete
from kit.trace.text import ANY, is_message
from kit.trace.waits import deadlock


class HangDetector:
    """The reports of the ranks of a recorded run: every operation issued, and the one each waits in."""

    def __init__(self) -> None:
        self._operations: dict[int, tuple[Operation, ...]] = {}
        self._together: dict[str, list[Operation]] = {}  # by match, in the order of ranks
        self._waits: dict[int, int] = {}
        self._complete: set[int] = set()  # ranks that have told of all their operations

    def hear(self, rank: int, operations: tuple[Operation, ...], waiting: int | None) -> bool:
        """Whether this is news: what a rank said before it ended may be heard after its end."""
        if rank in self._complete:
            return False
        self._operations[rank] = operations
        self._waits.pop(rank, None)
        if waiting is not None:
            self._waits[rank] = waiting
        self._together = defaultdict(list)
        for _, issued in sorted(self._operations.items()):
            for operation in issued:
                self._together[operation.match].append(operation)
        return True

    def hear_all(self, rank: int, operations: tuple[Operation, ...]) -> None:
        """Of a rank that has ended."""
        self.hear(rank, operations, None)
        self._complete.add(rank)

    def goes_on(self, rank: int) -> None:
        """It waits no more."""
        self._waits.pop(rank, None)

    def is_held(self, rank: int) -> bool:
        """Whether a rank waits in what others have not come to, or cannot end; any other may be going on already."""
        return rank in self._waits and (bool(self.missing(rank)) or self._clash(rank) is not None)

    def missing(self, rank: int) -> tuple[int, ...]:
        """Who has not issued their part of what `rank` waits in, as far as it has told."""
        if rank not in self._waits:
            return ()
        operation = self._waited(rank)
        if operation.peer == ANY:
            others = (r for r in operation.ranks if r != rank)
            return tuple(others) if not self._has_message_for(operation) else ()
        there = {op.rank for op in self._together[operation.match]}
        parts = operation.ranks if operation.peer is None else (operation.rank, operation.peer)
        return tuple(r for r in parts if r not in there)

    def verdict(self, states: Sequence[RankState]) -> str | None:
        """Why the ranks that wait can never go on, or None while they may."""
        clashes = (self._clash(rank) for rank in sorted(self._waits))
        missing = {r: self.missing(r) for r in self._waits}
        sentence = next(filter(None, clashes), None)
        return sentence or deadlock(states, {r: m for r, m in missing.items() if m}, self._alone())

    def _waited(self, rank: int) -> Operation:
        return self._operations[rank][self._waits[rank]]

    def _clash(self, rank: int) -> str | None:
        """What the parts known of the operation that a rank waits in disagree on, or of one that it launched before and
        that is not over: those behind it may never be, although all their ranks have come.
        """
        waited = self._waited(rank)
        before = self._operations[rank][: self._waits[rank]]
        launched = [op for op in before if op.ended is None and op.error is None and op.group == waited.group]
        return next(filter(None, (disagreement(self._together[op.match]) for op in (*launched, waited))), None)

    def _alone(self) -> list[Operation]:
        """Messages that have met no partner, as far as is known."""
        return [parts[0] for parts in self._together.values() if is_message(parts[0].name) and not is_complete(parts)]

    def _has_message_for(self, receive: Operation) -> bool:
        wanted = ("send", receive.rank, receive.tag, receive.group)
        issued = (op for operations in self._operations.values() for op in operations)
        taken = Counter(op.match for op in issued if (op.name, op.peer, op.tag, op.group) == wanted)
        taken.subtract(op.match for op in self._operations[receive.rank] if op.name == "recv")
        return any(count > 0 for count in taken.values())


def held_up(rank: int, detail: str) -> str:
    return f"rank {rank} is {detail}: continue it, or run cluster.reset()."


def died(rank: int, detail: str, last: Sequence[tuple[Operation, ...]] = ()) -> str:
    """A rank's death. last: every rank's last operations, as their black boxes have them; () when it died before the
    run.

    The dead rank's are compared with its partners', because gloo aborts a process on a message that does not fit. A
    black box tells what its rank had entered, not whether it had left it.
    """
    again = "Run cluster.reset() to have all ranks again."
    own = last[rank] if last else ()
    if not own:
        return f"rank {rank} died: {detail}. {again}"
    together = ([op for ops in last for op in ops if op.match == mine.match] for mine in own)
    sentence = next(filter(None, map(disagreement, together)), None)
    where = f"rank {rank} died in {own[-1].words}{own[-1].at_line} or after it: {detail}."
    return f"{where} {sentence} {again}" if sentence else f"{where} {again}"
