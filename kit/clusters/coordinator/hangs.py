"""Judging a recorded run that hangs, and a rank's death, from the operations that the ranks had issued."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from kit.clusters.coordinator.matching import ANY
from kit.trace.match import disagreement
from kit.trace.text import line_text, operation_words
from kit.trace.waits import deadlock

if TYPE_CHECKING:
    from kit.trace.facts import Operation, RankState


class HangDetector:
    """The reports of the ranks of a recorded run: every operation issued, and the one each waits in."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._operations: dict[int, tuple[Operation, ...]] = {}
        self._waits: dict[int, int] = {}
        self._ended: set[int] = set()
        self._asked: set[int] = set()  # ranks whose answer is worth waiting for
        self._patient = True

    def hear(
        self,
        rank: int,
        operations: tuple[Operation, ...],
        waiting: int | None,
        answer: bool = True,
        ended: bool = False,
    ) -> None:
        """`answer`: the rank was asked; without that it speaks up by itself, every half second of a wait."""
        self._patient = answer or waiting is None or self._waits.get(rank) != waiting
        if not self._patient:
            self._asked.clear()  # it spoke up for the same wait before: whoever has not answered by now cannot
        self._asked.discard(rank)
        self._operations[rank] = operations
        self._waits.pop(rank, None)
        if waiting is not None:
            self._waits[rank] = waiting
        if ended:
            self._ended.add(rank)

    def ask(self, able: Container[int]) -> list[int]:
        """The ranks that could say something new, among those able to; the verdict waits for their answers."""
        silent = [r for r in range(self._size) if r in able and r not in self._ended and r not in self._waits]
        if self._patient:
            self._asked.update(silent)
        return silent

    def missing(self, rank: int) -> tuple[int, ...]:
        """Who has not issued their part of what `rank` waits in."""
        operation = self._operations[rank][self._waits[rank]]
        if operation.peer == ANY:
            others = (r for r in operation.ranks if r != rank)
            return tuple(others) if not self._has_message_for(operation) else ()
        there = {op.rank for ops in self._operations.values() for op in ops if op.match == operation.match}
        parts = operation.ranks if operation.peer is None else (operation.rank, operation.peer)
        return tuple(r for r in parts if r not in there)

    def verdict(self, states: Sequence[RankState]) -> str | None:
        """Why the ranks that wait can never go on, or None while they may."""
        if not self._waits or self._asked:
            return None
        together: dict[str, list[Operation]] = defaultdict(list)
        for operations in self._operations.values():
            for operation in operations:
                together[operation.match].append(operation)
        for rank, index in sorted(self._waits.items()):
            entries = together[self._operations[rank][index].match]
            sentence = disagreement(sorted(entries, key=lambda op: op.rank)) if len(entries) > 1 else None
            if sentence is not None:
                return None if self._patient and self._may_come(entries) else sentence
        missing = {r: self.missing(r) for r in self._waits}
        return deadlock(states, {r: m for r, m in missing.items() if m})

    def _may_come(self, entries: Sequence[Operation]) -> bool:
        """Whether a rank that has not issued its part still runs: said of all its ranks the sentence is clearer."""
        there = {op.rank for op in entries} | self._ended | self._waits.keys()
        return not there.issuperset(entries[0].ranks)

    def _has_message_for(self, receive: Operation) -> bool:
        taken: Counter[str] = Counter()
        for operations in self._operations.values():
            for op in operations:
                if (
                    op.name == "send"
                    and op.peer == receive.rank
                    and op.tag == receive.tag
                    and op.group == receive.group
                ):
                    taken[op.match] += 1
        taken.subtract(op.match for op in self._operations[receive.rank] if op.name == "recv")
        return any(count > 0 for count in taken.values())


def held_up(rank: int, detail: str) -> str:
    return f"rank {rank} is {detail}: continue it, or run cluster.reset()."


def died(rank: int, detail: str, last: Sequence[Operation | None] = ()) -> str:
    """A rank's death. last: every rank's last operation, as their black boxes have it; () when it died before the run.

    The dead rank's is compared with its partners', because gloo aborts a process on a message that does not fit.
    """
    again = "Run cluster.reset() to have all ranks again."
    own = last[rank] if last else None
    if own is None:
        return f"rank {rank} died: {detail}. {again}"
    sentence = disagreement([op for op in last if op is not None and op.match == own.match])
    where = f"rank {rank} died in {operation_words(own)} ({line_text(own.place)}): {detail}. {again}"
    return f"{sentence} {where}" if sentence else where
