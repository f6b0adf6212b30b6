"""Which operations belong together, and whether they fit.

Collectives of a group meet in posting order, messages between two ranks in the order of their sends and receives, a
receive from any source takes the earliest message that waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kit.trace.facts import Operation
from kit.trace.match import disagreement
from kit.trace.text import ANY


@dataclass(frozen=True)
class Match:
    """Operations that belong together: they fit and may run, or `sentence` says why they do not."""

    operations: tuple[Operation, ...]
    sentence: str | None = None
    source: int | None = None  # of a receive from any source


@dataclass
class PendingOperations:
    """Operations that have been posted and have not met all their partners yet."""

    _collectives: dict[str, dict[int, Operation]] = field(default_factory=dict)
    _refused: dict[str, str] = field(default_factory=dict)
    _sends: list[Operation] = field(default_factory=list)
    _receives: list[Operation] = field(default_factory=list)

    def post(self, operation: Operation) -> Match | None:
        """Takes an operation in; a Match when this completes one, or shows that it can never be completed."""
        if operation.name == "send":
            return self._post_message(operation, self._sends, self._receives)
        if operation.name == "recv":
            return self._post_message(operation, self._receives, self._sends)
        return self._post_collective(operation)

    def missing(self, operation: Operation) -> tuple[int, ...]:
        """The ranks that have not posted their part of an operation that is still open."""
        if operation.peer == ANY:
            return tuple(r for r in operation.ranks if r != operation.rank)
        if operation.peer is not None:
            return (operation.peer,)
        here = self._collectives.get(operation.match, {})
        return tuple(r for r in operation.ranks if r not in here)

    def _post_collective(self, operation: Operation) -> Match | None:
        if operation.match in self._refused:
            return Match((operation,), self._refused[operation.match])
        here = self._collectives.setdefault(operation.match, {})
        here[operation.rank] = operation
        return self._conclude(operation.match) if len(here) == len(operation.ranks) else None

    @property
    def messages(self) -> tuple[Operation, ...]:
        """Sends and receives that have met no partner."""
        return (*self._sends, *self._receives)

    @property
    def open(self) -> list[tuple[Operation, ...]]:
        """The parts that are there of each communication that is not complete, in the order in which it was begun."""
        begun = [*map(_by_rank, self._collectives.values()), *((message,) for message in self.messages)]
        return sorted(begun, key=lambda parts: min(part.issued for part in parts))

    def withdraw(self, rank: int) -> None:
        """A rank has died: what it had posted will not be done."""
        for here in self._collectives.values():
            here.pop(rank, None)
        self._collectives = {match: here for match, here in self._collectives.items() if here}
        self._sends = [send for send in self._sends if send.rank != rank]
        self._receives = [receive for receive in self._receives if receive.rank != rank]

    def misfits(self) -> list[Match]:
        """Collectives that can never be completed, since those who are here disagree already.

        Asked for when nobody moves any more, so that the sentence speaks of all who came and not of the first two.
        """
        open_ones = [m for m, here in self._collectives.items() if disagreement(_by_rank(here)) is not None]
        return [self._conclude(match) for match in open_ones]

    def _conclude(self, match: str) -> Match:
        entries = _by_rank(self._collectives.pop(match))
        sentence = disagreement(entries)
        if sentence is not None:
            self._refused[match] = sentence
        return Match(entries, sentence)

    def _post_message(self, mine: Operation, waiting: list[Operation], others: list[Operation]) -> Match | None:
        for other in others:
            send, receive = (mine, other) if mine.name == "send" else (other, mine)
            if _fit(send, receive):
                others.remove(other)
                source = send.rank if receive.peer == ANY else None
                return Match((send, receive), disagreement((send, receive)), source)
        waiting.append(mine)
        return None


def _by_rank(here: dict[int, Operation]) -> tuple[Operation, ...]:
    return tuple(here[rank] for rank in sorted(here))


def _fit(send: Operation, receive: Operation) -> bool:
    return (
        send.group == receive.group
        and send.tag == receive.tag
        and send.peer == receive.rank
        and receive.peer in (send.rank, ANY)
    )
