"""Worlds larger than any machine at hand: a collective on thousands of ranks, message by message, without a rank.

A discrete-event simulation in the alpha-beta model of `kit.cost.network`: a message begins when both sides are there
and lasts a + m b. Since a rank's rounds follow each other and hold one message each way at most, the events can be
taken round by round for all ranks at once; the work is linear in the number of messages.

Measured on one core of a small machine: a ring all-reduce on 1,024 ranks, 2.1 million messages, takes 0.1 s and 50 MB;
on 4,096 ranks, 33.5 million messages, 0.6 s and less memory, because beyond `KEPT` messages only totals are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kit.cost import network
from kit.cost.schedules import SCHEDULES, Ints, Round
from kit.trace.facts import Meta, Operation, RankTrace
from kit.trace.trace import Trace

Floats = npt.NDArray[np.float64]
Timed = tuple[Round, Floats, Floats]  # the round, when each of its messages began, when it ended
KEPT = 5_000_000  # messages whose times are kept, about 24 bytes each; beyond it a world knows its totals alone
DRAWN = 200_000  # operations that a Trace may be made of


@dataclass(frozen=True, eq=False)
class World:
    """A predicted run of one collective. Arrays go by rank; times are seconds from the start."""

    collective: str
    ranks: int
    nbytes: int  # S, the whole buffer
    itemsize: int
    latency: float
    bandwidth: float
    finish: Floats  # when each rank is done
    bytes_sent: Ints
    bytes_received: Ints
    messages: int
    rounds: int
    notes: tuple[str, ...] = ()
    starts: tuple[float, ...] | None = None
    _kept: tuple[Timed, ...] | None = None

    @property
    def seconds(self) -> float:
        """When the last rank is done."""
        return float(self.finish.max())

    def __str__(self) -> str:
        return (
            f"{self.collective} of {self.nbytes:,} bytes on {self.ranks:,} ranks, predicted:"
            f" {self.seconds * 1e3:.4g} ms, {self.messages:,} messages in {self.rounds:,} rounds"
        )

    __repr__ = __str__

    def trace(self, first: int | None = None) -> Trace:
        """The first so many ranks (None: all) as a Trace of mode 'predicted', which every view draws.

        Operations whose other side lies outside are there with their times. Raises ValueError where that would be more
        than 200,000 operations, or where the world was too large to keep its messages.
        """
        shown = self.ranks if first is None else first
        if not 1 <= shown <= self.ranks:
            raise ValueError(
                f"this world has {self.ranks} ranks: show the first 1 to {self.ranks} of them, not {shown}"
            )
        if self._kept is None:
            raise ValueError(
                f"{self.messages:,} messages are too many to keep (the limit is {KEPT:,}): this world knows its totals,"
                " finish, bytes_sent and bytes_received; simulate fewer ranks for a trace"
            )
        inside = sum(int((r.source < shown).sum() + (r.destination < shown).sum()) for r, _, _ in self._kept)
        if inside > DRAWN:
            most = max(1, shown * DRAWN // inside)
            raise ValueError(
                f"a trace of {inside:,} operations is too large (the limit is {DRAWN:,}): ask for trace(first={most})"
            )
        part = (f"ranks 0 to {shown - 1} of {self.ranks:,}",) if shown < self.ranks else ()
        meta = Meta(
            function=self.collective,
            mode="predicted",
            world=shown,
            backend="alpha-beta",
            devices=("predicted",) * shown,
            arguments=f"S: {self.nbytes:,} bytes",
            notes=(*self.notes, *part),
        )
        return Trace(meta, _written(self, self._kept, shown))


def simulated(
    collective: str,
    ranks: int,
    nbytes: int,
    *,
    latency: float,
    bandwidth: float,
    itemsize: int = 4,
    node: int | None = None,
    between: tuple[float, float] | None = None,
    starts: Sequence[float] | None = None,
) -> World:
    """What a reference collective would do on `ranks` ranks, each with a link of its own.

    collective: a name of `kit.cost.schedules.SCHEDULES`. nbytes: the whole buffer S, in elements of `itemsize` bytes.
    latency in s, bandwidth in bytes/s. node, between: ranks live in nodes of so many, and messages from node to node
    have this latency and bandwidth instead. starts: when each rank arrives, in s; None: all at 0.

    On equal links and with S divisible by n this is the closed form of `kit.cost.network`; on unequal ones, for other S
    and for late ranks it is what the closed form cannot say. Raises ValueError for what makes no sense.
    """
    if collective not in SCHEDULES:
        raise ValueError(f"no schedule is known for {collective!r}: choose from {', '.join(SCHEDULES)}")
    if not isinstance(ranks, int) or ranks < 1:
        raise ValueError(f"ranks is a whole number, 1 or more, not {ranks!r}")
    if itemsize < 1 or nbytes < 0 or nbytes % itemsize:
        raise ValueError(f"{nbytes} bytes are no whole number of elements of {itemsize} bytes")
    network.message(0, latency, bandwidth)  # checks both
    clock = np.zeros(ranks) if starts is None else np.array(starts, dtype=float)
    if clock.shape != (ranks,) or (clock < 0).any():
        raise ValueError(f"starts are {ranks} times in seconds, one for each rank, 0 or more")
    if (node is None) != (between is None):
        raise ValueError("node=8, between=(latency, bandwidth): give both, or neither")
    nodes: tuple[str, ...] = ()
    if node is not None and between is not None:
        if node < 1:
            raise ValueError(f"a node has at least one rank, not {node}")
        network.message(0, *between)
        slow = f"latency {between[0] * 1e6:g} µs, bandwidth {between[1] / 1e9:g} GB/s"
        nodes = (f"nodes of {node} ranks, between them {slow}",)
    sent, received = np.zeros(ranks, dtype=np.int64), np.zeros(ranks, dtype=np.int64)
    kept: list[Timed] | None = []
    messages = rounds = 0
    for one in SCHEDULES[collective](ranks, nbytes // itemsize):
        size = one.elements * itemsize
        began = np.maximum(clock[one.source], clock[one.destination])
        took = latency + size / bandwidth
        if node is not None and between is not None:
            crosses = one.source // node != one.destination // node
            took = np.where(crosses, between[0] + size / between[1], took)
        ended = began + took
        # a rank is in a round once as a source and once as a destination at most, so nothing is overwritten
        after = clock.copy()
        after[one.source] = ended
        after[one.destination] = np.maximum(after[one.destination], ended)
        clock = after
        sent[one.source] += size
        received[one.destination] += size
        messages, rounds = messages + len(size), rounds + 1
        if kept is not None:
            kept.append((one, began, ended))
            if messages > KEPT:
                kept = None
    return World(
        collective=collective,
        ranks=ranks,
        nbytes=nbytes,
        itemsize=itemsize,
        latency=latency,
        bandwidth=bandwidth,
        finish=clock,
        bytes_sent=sent,
        bytes_received=received,
        messages=messages,
        rounds=rounds,
        notes=(f"predicted: latency {latency * 1e6:g} µs, bandwidth {bandwidth / 1e9:g} GB/s", *nodes),
        starts=None if starts is None else tuple(starts),
        _kept=None if kept is None else tuple(kept),
    )


def _written(world: World, rounds: Iterable[Timed], shown: int) -> tuple[RankTrace, ...]:
    """What the first `shown` ranks of a world did, in nanoseconds from 0.

    A rank issues its receive and its send of a round together and waits for both, in this order, as `exchange` does.
    """
    everyone = tuple(range(world.ranks))
    clock: list[int] = _nanoseconds(world.starts or np.zeros(shown))[:shown].tolist()
    operations: list[list[Operation]] = [[] for _ in range(shown)]
    counts: Counter[tuple[int, int]] = Counter()
    for one, began, ended in rounds:
        near = np.flatnonzero((one.source < shown) | (one.destination < shown))
        nbytes = one.elements * world.itemsize
        columns = (one.source, one.destination, nbytes, _nanoseconds(began), _nanoseconds(ended))
        messages = list(zip(*(column[near].tolist() for column in columns), strict=True))
        until: dict[int, int] = {}  # by rank: when its last wait of this round ends
        for name in ("recv", "send"):
            for source, destination, size, start, end in messages:
                rank, peer = (destination, source) if name == "recv" else (source, destination)
                if rank >= shown:
                    continue
                since = until.get(rank, clock[rank])
                until[rank] = max(since, end)
                operations[rank].append(
                    Operation(
                        rank=rank,
                        index=len(operations[rank]),
                        name=name,
                        group="0",
                        ranks=everyone,
                        match=f"0/p/{source}>{destination}/0/{counts[source, destination]}",
                        place=None,
                        regions=(),
                        payload=size,
                        issued=clock[rank],
                        began=start,
                        ended=end,
                        waits=((since, end),) if end > since else (),
                        peer=peer,
                        tag=0,
                    )
                )
        counts.update((source, destination) for source, destination, *_ in messages)
        for rank, end in until.items():
            clock[rank] = end
    done = enumerate(zip(operations, clock, strict=True))
    return tuple(RankTrace(rank, operations=tuple(own), active=((0, end),)) for rank, (own, end) in done)


def _nanoseconds(seconds: npt.ArrayLike) -> Ints:
    return np.rint(np.asarray(seconds) * 1e9).astype(np.int64)
