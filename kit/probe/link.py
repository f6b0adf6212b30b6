"""A slower network: real messages, held back in the ranks that send and receive them.

A transfer of m bytes occupies its link for m / bandwidth seconds and arrives `latency` seconds after its last byte has
left; a rank has one link out and one link in, which work at the same time. Nothing is held back before both sides are
there: a rank that waits for a partner waits as ever. Collectives that the library runs inside itself take what the
table handed in says (rounds x latency + volume x bytes / bandwidth), since their messages are not seen one by one.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from kit.probe.later import Later
from kit.probe.operations import POINT_TO_POINT, Draft, nbytes

REAL = (1e-4, 1e9)  # s and bytes/s of the machine's own transfers, at least: that time is part of the slow one's
GRACE = 0.002  # s that a transfer keeps its place in the queue while its partner is not there yet


@dataclass(frozen=True)
class Links:
    """Which links are slow, and how. Plain data: it travels with the order to run.

    latency: s. bandwidth: bytes/s. pairs: the pairs of ranks (lower first) whose link this is; None means all.
    collectives: for a name and a number of ranks the rounds and the volume, in units of the whole buffer.
    """

    latency: float
    bandwidth: float
    pairs: frozenset[tuple[int, int]] | None = None
    collectives: Mapping[str, Mapping[int, tuple[float, float]]] = field(default_factory=dict)

    def between(self, one: int, other: int) -> bool:
        return self.pairs is None or (min(one, other), max(one, other)) in self.pairs

    def in_words(self) -> str:
        """'links throttled to 1 ms and 0.1 GB/s', for the notes of a trace."""
        parts = [f"{self.latency * 1e3:g} ms"] if self.latency else []
        parts += [f"{self.bandwidth / 1e9:g} GB/s"] if self.bandwidth < math.inf else []
        where = "links" if self.pairs is None else "links between nodes"
        return f"{where} throttled to {' and '.join(parts)}"

    def among(self, ranks: tuple[int, ...]) -> bool:
        """Whether a collective of these ranks crosses a slow link."""
        return any(self.between(a, b) for a in ranks for b in ranks if a < b)


class Lane:
    """One direction of a rank's link: transfers queue for it, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._next = 0
        self._served = 0
        self._free_at = 0.0

    def ticket(self) -> int:
        with self._turn:
            self._next += 1
            return self._next - 1

    def enter(self, ticket: int) -> None:
        """Blocks until those before have started and the link is free."""
        with self._turn:
            while self._served != ticket:
                self._turn.wait()
            free_at = self._free_at
        time.sleep(max(0.0, free_at - time.monotonic()))

    def leave(self) -> None:
        with self._turn:
            self._served += 1
            self._turn.notify_all()

    def occupy(self, since: float, seconds: float) -> float:
        """Takes the link for `seconds` from `since` on, or from when it is free; returns when that ends."""
        with self._turn:
            self._free_at = max(self._free_at, since) + seconds
            return self._free_at


class Throttle:
    """The slow links of one rank for one run."""

    def __init__(self, links: Links, rank: int, device: torch.device) -> None:
        self._links = links
        self._rank = rank
        self._device = device
        self._out, self._in = Lane(), Lane()

    def issue(self, draft: Draft, ranks: tuple[int, ...], launch: Callable[[], dist.Work]) -> dist.Work:
        """Launches an operation, now or when the link is free, and returns a Work that is done when it would be."""
        cost = self._cost(draft, ranks)
        if cost is None:
            return launch()
        latency, occupied = cost
        later = Later(draft.outputs, self._device)
        if draft.name == "recv":
            transfer = _Transfer(later, self._in, latency, occupied, launch(), draft.peer == -1, draft.payload)
            threading.Thread(target=transfer.arrive, daemon=True).start()
        else:
            transfer = _Transfer(later, self._out, latency, occupied, nbytes=draft.payload)
            ticket = self._out.ticket()
            threading.Thread(target=transfer.depart, args=(ticket, launch), daemon=True).start()
        return later

    def _cost(self, draft: Draft, ranks: tuple[int, ...]) -> tuple[float, float] | None:
        """(seconds of latency, seconds the link is occupied), or None where no slow link is crossed."""
        links = self._links
        if draft.name in POINT_TO_POINT:
            slow = any(links.between(self._rank, r) for r in ranks) if draft.peer == -1 else None
            if slow is None:
                slow = links.between(self._rank, ranks[draft.peer or 0])
            return (links.latency, draft.payload / links.bandwidth) if slow else None
        rounds, volume = links.collectives.get(draft.name, {}).get(len(ranks), (0.0, 0.0))
        if not links.among(ranks) or (rounds, volume) == (0.0, 0.0):
            return None
        return rounds * links.latency, volume * _whole_buffer(draft, len(ranks)) / links.bandwidth


def _whole_buffer(draft: Draft, n: int) -> int:
    """The S of the formulas, which in gather and scatter only the root holds whole."""
    pieces = {"gather": draft.inputs, "scatter": draft.outputs}.get(draft.name)
    return draft.payload if pieces is None else n * nbytes(pieces)


@dataclass
class _Transfer:
    later: Later
    lane: Lane
    latency: float
    occupied: float
    work: dist.Work | None = None
    any_source: bool = False
    nbytes: int = 0
    since: float = 0.0  # when its bytes began to move

    def depart(self, ticket: int, launch: Callable[[], dist.Work]) -> None:
        self.lane.enter(ticket)
        met = threading.Event()
        try:
            self.work = launch()
        except Exception as error:  # what the library refuses reaches the rank that waits
            self.lane.leave()
            self.later.fail(error)
            return
        threading.Thread(target=self._meet, args=(met,), daemon=True).start()
        in_turn = met.wait(GRACE)
        if in_turn:
            due = self._occupy()
        self.lane.leave()  # a transfer whose partner is late must not stop those behind it
        if not in_turn:
            met.wait()
            due = self._occupy()
        self._end(due)

    def arrive(self) -> None:
        self._meet(threading.Event())
        self._end(self._occupy())

    def _meet(self, met: threading.Event) -> None:
        """Waits for the real operation, which ends when the partner is there and the bytes have moved."""
        assert self.work is not None
        begun = time.monotonic()
        try:
            self.work.wait()
            if self.any_source:
                self.later.source = self.work._source_rank()
        except Exception as error:  # what the library raises reaches the rank that waits
            self.later.error = error
        ended = time.monotonic()
        self.since = ended - min(ended - begun, REAL[0] + self.nbytes / REAL[1])
        met.set()

    def _occupy(self) -> float:
        return self.lane.occupy(self.since, self.occupied)

    def _end(self, due: float) -> None:
        time.sleep(max(0.0, due + self.latency - time.monotonic()))
        self.later.finish()
