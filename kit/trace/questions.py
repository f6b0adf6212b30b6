"""Questions about a trace: who sent what to whom, who waited, who held how much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kit.trace.pairs import by_match, is_complete, moved, send_and_receive
from kit.trace.sentences import is_message
from kit.trace.timeline import spans
from kit.trace.traffic import Traffic, nbytes, received, sent

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.trace.facts import Operation, Trace


@dataclass(frozen=True, slots=True)
class Message:
    """A tensor on its way from one rank to another."""

    source: int
    destination: int
    tag: int
    nbytes: int
    match: str
    sent: Operation
    received: Operation | None  # None while the destination has not posted its receive


def bytes_sent(trace: Trace, rank: int | None = None) -> Traffic:
    """Bytes that a rank (None: all ranks together) handed out, by kind.

    Operations whose data never moved, such as a send that nobody received, count nothing.
    Raises ValueError for a rank that the trace does not have.
    """
    return _total(trace, rank, sent)


def bytes_received(trace: Trace, rank: int | None = None) -> Traffic:
    """Bytes that a rank (None: all ranks together) took in, by kind; as `bytes_sent`."""
    return _total(trace, rank, received)


def messages(trace: Trace, rank: int | None = None) -> tuple[Message, ...]:
    """Every send, in order of issue, with the receive that met it. rank: only those it sent or receives."""
    check_rank(trace, rank)
    found = []
    for entries in by_match(trace).values():
        send, receive = send_and_receive(entries)
        if send is None or send.peer is None:
            continue
        if rank is None or rank in (send.rank, send.peer):
            size = nbytes(send.regions) if send.regions else send.payload
            found.append(Message(send.rank, send.peer, send.tag or 0, size, send.match, send, receive))
    return tuple(sorted(found, key=lambda message: (message.sent.issued, message.source, message.sent.index)))


def collectives(trace: Trace, rank: int | None = None) -> tuple[Operation, ...]:
    """Every rank's part in every collective (all but send and receive), rank by rank, in order of issue."""
    check_rank(trace, rank)
    ranks = trace.ranks if rank is None else (trace.ranks[rank],)
    return tuple(op for one in ranks for op in one.operations if not is_message(op.name))


def unmatched(trace: Trace) -> tuple[Operation, ...]:
    """Operations that still miss a participant: a send without its receive, a lonely collective."""
    return tuple(op for entries in by_match(trace).values() if not is_complete(entries) for op in entries)


def peak_memory(trace: Trace, rank: int) -> int:
    """The most bytes a rank held, by the method its stops name; 0 if the record has no stop of it."""
    check_rank(trace, rank)
    return max((max(stop.memory.peak, stop.memory.now) for stop in trace.ranks[rank].stops), default=0)


def waiting_time(trace: Trace, rank: int) -> float:
    """Seconds a rank's code stood still because another had not come yet, on the axis of `spans`.

    A wait that has not ended counts in a recorded run as far as it was seen; in a stepped run it does not count, since
    its length is the person's.
    """
    return _time(trace, rank, "wait")


def exposed_communication(trace: Trace, rank: int) -> float:
    """Seconds a rank's code stood in wait while data moved: communication that its own computing did not hide."""
    return _time(trace, rank, "communicate")


def check_rank(trace: Trace, rank: int | None) -> None:
    """Raises ValueError for a rank that the trace does not have."""
    if rank is not None and not 0 <= rank < len(trace.ranks):
        raise ValueError(f"the trace has no rank {rank}: choose one of 0 to {len(trace.ranks) - 1}")


def _total(trace: Trace, rank: int | None, of: Callable[[Operation], Traffic]) -> Traffic:
    check_rank(trace, rank)
    total = Traffic(0, 0.0, 0)
    for entries in by_match(trace).values():
        if moved(entries):
            for op in entries:
                if rank is None or op.rank == rank:
                    total += of(op)
    return total


def _time(trace: Trace, rank: int, kind: str) -> float:
    check_rank(trace, rank)
    return sum(
        span.end - span.start
        for span in spans(trace)
        if span.rank == rank and span.kind == kind and span.lane == 0 and not (span.open and trace.meta.mode == "step")
    )
