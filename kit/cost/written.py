"""Simulated messages written down as a Trace: the operations that the ranks would have recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kit.trace.facts import Meta, Operation, RankTrace, Trace


class Message(NamedTuple):
    """One message: bytes, and when it was under way in seconds."""

    source: int
    destination: int
    nbytes: int
    began: float
    ended: float


def written(meta: Meta, world: int, rounds: Iterable[Sequence[Message]], starts: Sequence[float] | None) -> Trace:
    """The first meta.world of `world` ranks as a trace of mode 'predicted'; times in nanoseconds from 0.

    rounds: a rank issues its receive and its send of a round together and waits for both. starts: when each rank
    arrives, in s; None: all at 0.
    """
    shown = meta.world
    writer = _Writer(world, [0] * shown if starts is None else [_ns(start) for start in starts[:shown]])
    for messages in rounds:
        writer.round(messages)
    ranks = tuple(
        RankTrace(rank, operations=tuple(writer.operations[rank]), active=((0, writer.clock[rank]),))
        for rank in range(shown)
    )
    return Trace(meta, ranks)


class _Writer:
    def __init__(self, world: int, clock: list[int]) -> None:
        self.everyone = tuple(range(world))
        self.clock = clock
        self.operations: list[list[Operation]] = [[] for _ in clock]
        self.counts: Counter[tuple[int, int]] = Counter()

    def round(self, messages: Sequence[Message]) -> None:
        ends: dict[int, int] = {}
        for name in ("recv", "send"):  # in the order in which `kit.parallel.exchange` posts and awaits them
            for message in messages:
                rank = message.destination if name == "recv" else message.source
                if rank < len(self.clock):
                    ends[rank] = self.add(name, rank, message, ends.get(rank, self.clock[rank]))
        for message in messages:
            self.counts[message.source, message.destination] += 1
        for rank, end in ends.items():
            self.clock[rank] = end

    def add(self, name: str, rank: int, message: Message, waited_from: int) -> int:
        """Notes one side of a message; returns until when the rank has waited."""
        source, destination, nbytes, began, ended = message
        end = max(waited_from, _ns(ended))
        self.operations[rank].append(
            Operation(
                rank=rank,
                index=len(self.operations[rank]),
                name=name,
                group="0",
                ranks=self.everyone,
                match=f"0/p/{source}>{destination}/0/{self.counts[source, destination]}",
                place=None,
                regions=(),
                payload=nbytes,
                issued=self.clock[rank],
                began=_ns(began),
                ended=_ns(ended),
                waits=((waited_from, end),) if end > waited_from else (),
                peer=source if name == "recv" else destination,
                tag=0,
            )
        )
        return end


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
