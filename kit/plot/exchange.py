"""The communication in view at a position: the messages of this exchange, or the collective that ranks are in.

Each rank brings the operations of the last line that issued any. What a newer operation on the same channel replaced
is left out, so a rank that was held back does not drag an old exchange into the picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from kit.plot.moment import is_done, issued, last_burst, pending, position_at
from kit.plot.variables import item_label
from kit.trace.match import send_and_receive
from kit.trace.text import canonical, is_message, size

if TYPE_CHECKING:
    from kit.trace.facts import Operation, Region
    from kit.trace.trace import Trace


@dataclass(frozen=True, slots=True)
class Parcel:
    """One message: delivered, or waiting for its other side."""

    source: int
    destination: int
    label: str  # 'chunk 2', or the shape where no variable is known
    nbytes: int
    delivered: bool
    match: str


@dataclass(frozen=True, slots=True)
class Gathering:
    """One collective: who has called it, who has not, and whether it is done."""

    name: str
    ranks: tuple[int, ...]
    arrived: tuple[int, ...]
    root: int | None
    reduce: str | None
    label: str  # the variable it works on, or ''
    nbytes: int
    done: bool
    match: str

    @property
    def missing(self) -> tuple[int, ...]:
        return tuple(rank for rank in self.ranks if rank not in self.arrived)


@dataclass(frozen=True, slots=True)
class Exchange:
    """What is drawn: messages or collectives (of several groups at once), never both."""

    parcels: tuple[Parcel, ...] = ()
    gatherings: tuple[Gathering, ...] = ()


def exchange(trace: Trace, position: int) -> Exchange:
    """The communication in view; empty before the first operation."""
    world = len(position_at(trace, position).states)
    bursts = {rank: last_burst(trace, position, rank) for rank in range(world)}
    waiting = [op for rank in range(world) for op in pending(trace, position, rank)]
    latest = max(waiting or [op for ops in bursts.values() for op in ops], key=lambda op: op.issued, default=None)
    if latest is None:
        return Exchange()
    messages = is_message(latest.name)
    keys: dict[str, Operation] = {}
    for op in sorted((op for ops in bursts.values() for op in ops), key=lambda op: op.issued):
        if is_message(op.name) == messages and op.match:
            keys.setdefault(op.match, op)
    parts = _parts(trace, position, set(keys))
    channels: dict[object, str] = {}
    for match in keys:  # oldest first: the newest of a channel stays
        channels[_channel(keys[match])] = match
    current = [parts[match] for match in keys if match in channels.values()]
    if messages:
        found = [_parcel(trace, position, entries) for entries in current]
        return Exchange(parcels=tuple(sorted(found, key=lambda p: (p.source, p.destination, p.match))))
    return Exchange(gatherings=tuple(_gathering(trace, position, entries) for entries in current))


def delivered_bytes(trace: Trace, position: int) -> int:
    """Bytes of all messages delivered by then."""
    total = 0
    for rank, state in enumerate(position_at(trace, position).states):
        sends = (op for op in issued(trace, position, rank) if canonical(op.name) == "send")
        total += sum(op.payload for op in sends if is_done(op, state) and op.error is None)
    return total


def whole_bytes(trace: Trace) -> int | None:
    """Bytes of all messages of the run; None while ranks are not all finished, since nobody knows it yet."""
    if not trace.positions or any(state.phase != "finished" for state in trace.positions[-1].states):
        return None
    return sum(op.payload for rank in trace.ranks for op in rank.operations if canonical(op.name) == "send")


def region_label(trace: Trace, op: Operation, region: Region) -> str:
    """What to call the memory an operation uses: its name, or its shape where no name fits."""
    return region_name(trace, op, region) or size(region.shape, region.dtype).replace(" x ", " × ")


def region_name(trace: Trace, op: Operation, region: Region) -> str:
    """The learner's name for the memory an operation uses: 'chunk 2', 'x[2:4]'; '' where none fits."""
    stops = [stop for stop in trace.ranks[op.rank].stops if stop.operations <= op.index]
    count = prod(region.shape)
    inside = ""
    exact: list[str] = []
    for frame in reversed(stops[-1].frames if stops else ()):
        for fact in frame.tensors:
            first, length = region.offset - fact.offset, prod(fact.shape)
            if fact.storage != region.storage or first < 0 or first + count > length:
                continue
            if (first, count) == (0, length):
                exact.append(fact.name)
            elif len(fact.shape) == 1 and not inside:
                inside = f"{fact.name}[{first}:{first + count}]"
    named = next((name for name in exact if name.endswith("]")), exact[0] if exact else inside)
    return item_label(named)


def _parts(trace: Trace, position: int, matches: set[str]) -> dict[str, list[Operation]]:
    """All parts of some communications that were issued by now."""
    parts: dict[str, list[Operation]] = {match: [] for match in matches}
    for rank in range(len(trace.ranks)):
        for op in issued(trace, position, rank):
            if op.match in parts:
                parts[op.match].append(op)
    return parts


def _channel(op: Operation) -> object:
    if not is_message(op.name):
        return op.group
    ends = (op.rank, op.peer) if canonical(op.name) == "send" else (op.peer, op.rank)
    return (*ends, op.tag, op.group)


def _parcel(trace: Trace, position: int, entries: list[Operation]) -> Parcel:
    send, receive = send_and_receive(entries)
    known = send or receive
    assert known is not None
    states = position_at(trace, position).states
    done = all(is_done(op, states[op.rank]) and op.error is None for op in (send, receive) if op is not None)
    source, destination = (send.rank, send.peer) if send else (known.peer, known.rank)
    label = region_label(trace, known, known.regions[0]) if known.regions else ""
    label = label if send else f"into {label}"
    whole = done and send is not None and receive is not None
    return Parcel(_rank(source), _rank(destination), label, known.payload, whole, known.match)


def _rank(number: int | None) -> int:
    assert number is not None, "an operation with a match has both its sides"
    return number


def _gathering(trace: Trace, position: int, entries: list[Operation]) -> Gathering:
    states = position_at(trace, position).states
    first = entries[0]
    arrived = tuple(sorted(op.rank for op in entries))
    whole = set(arrived) >= set(first.ranks)
    barrier = first.name.endswith("barrier")  # some backends make one out of a tensor nobody asked for
    return Gathering(
        name=first.name,
        ranks=first.ranks,
        arrived=arrived,
        root=first.root,
        reduce=first.reduce,
        label=region_name(trace, first, first.regions[0]) if first.regions and not barrier else "",
        nbytes=0 if barrier else max(op.payload for op in entries),
        done=whole and all(is_done(op, states[op.rank]) for op in entries),
        match=first.match,
    )
