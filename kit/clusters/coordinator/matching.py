"""Which operations belong together, and whether they fit.

Collectives of a group meet in posting order, messages between two ranks in the order of their sends and receives, a
receive from any source takes the earliest message that waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kit.trace.facts import Operation
from kit.trace.match import disagreement

ANY = -1


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
            return self._post_send(operation)
        if operation.name == "recv":
            return self._post_receive(operation)
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

    def _post_send(self, send: Operation) -> Match | None:
        for receive in self._receives:
            if _fit(send, receive):
                self._receives.remove(receive)
                return _exchange(send, receive)
        self._sends.append(send)
        return None

    def _post_receive(self, receive: Operation) -> Match | None:
        for send in self._sends:
            if _fit(send, receive):
                self._sends.remove(send)
                return _exchange(send, receive)
        self._receives.append(receive)
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


def _exchange(send: Operation, receive: Operation) -> Match:
    source = send.rank if receive.peer == ANY else None
    return Match((send, receive), disagreement((send, receive)), source)
