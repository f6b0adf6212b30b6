"""A slower network: real messages, handed over when they would have come.

A transfer of m bytes takes its links for m / bandwidth seconds and arrives `latency` seconds after its last byte has
left; a rank has one link out and one link in, which work at the same time. It begins when both sides have asked for it
and their links are free, in the order in which transfers come to that. Nothing is held back before both sides are
there: a rank that waits for a partner waits as ever. Collectives that the library runs inside itself take what the
table handed in says (rounds x latency + volume x bytes / bandwidth) from their last rank's call on, since their
messages are not seen one by one.

The real transfer goes at once, and its time is part of the slow one's: `wait` comes back when both are over. Whoever
asks last knows when that is and tells the others (`board`), so nobody guesses. A message that follows another at once
counts from that one's arrival by the model (`held.Pace`), so what this machine is late does not add up along a chain;
but for that, and for the moment that a result needs to get through Python (`held.HANDING`), nothing comes earlier than
the model says after it was asked for.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
import torch.distributed as dist

from kit.probe.links.board import Board, Transfer
from kit.probe.links.held import Held, Pace
from kit.probe.links.prompt import SHORT, ask_for_turns
from kit.probe.operations import Draft, nbytes


@dataclass(frozen=True)
class Links:
    """Which links are slow, and how. Plain data: it travels with the order to run.

    latency: s. bandwidth: bytes/s. pairs: the pairs of ranks (lower first) whose link this is; None means all.
    collectives: for a name and a number of ranks the rounds and the volume, in units of the whole buffer. board: where
    ranks tell each other of their transfers.
    """

    latency: float
    bandwidth: float
    pairs: frozenset[tuple[int, int]] | None = None
    collectives: Mapping[str, Mapping[int, tuple[float, float]]] = field(default_factory=dict)
    board: str = ""

    def of(self, folder: Path) -> Links:
        """The same for ranks whose private folder is this one."""
        return replace(self, board=str(folder / "links"))

    def between(self, one: int, other: int) -> bool:
        return self.pairs is None or (min(one, other), max(one, other)) in self.pairs

    def in_words(self) -> str:
        """'links throttled to 1 ms latency and 100 MB/s', for the notes of a trace."""
        parts = [f"{self.latency * 1e3:.3g} ms latency"] if self.latency else []
        rate = self.bandwidth
        parts += [f"{rate / 1e9:.3g} GB/s" if rate >= 1e9 else f"{rate / 1e6:.3g} MB/s"] if rate < math.inf else []
        where = "links" if self.pairs is None else "links between nodes"
        return f"{where} throttled to {' and '.join(parts)}"

    def among(self, ranks: tuple[int, ...]) -> bool:
        """Whether a collective of these ranks crosses a slow link."""
        return any(self.between(a, b) for a in ranks for b in ranks if a < b)


class Throttle:
    """The slow links of one rank for one run."""

    def __init__(self, links: Links, rank: int, device: torch.device, run: int) -> None:
        self._links = links
        self._rank = rank
        self._device = device
        self._board = Board(links.board, run)
        self._board.come(rank)
        self._counts: Counter[str] = Counter()
        self._counting = threading.Lock()
        self._pace = Pace(threading.get_ident() if device.type == "cpu" else 0)  # a GPU's host runs ahead of it
        ask_for_turns(SHORT)

    def end(self) -> None:
        """The run is over: nobody waits for more, and this process is as it was."""
        self._board.closed = True
        ask_for_turns(0)

    def issue(
        self, draft: Draft, group: str, ranks: tuple[int, ...], launch: Callable[[], dist.Work], asked: int | None
    ) -> dist.Work:
        """Launches an operation; its Work is over when it would be. asked: when it was asked for, in ns; None: now."""
        since = time.monotonic() if asked is None else asked * 1e-9
        if draft.peer == -1:
            if not any(self._links.between(self._rank, r) for r in ranks):
                return launch()
            since = self._pace.asked(since)
            return self._held(launch(), draft, lambda source: self._transfer(draft, group, ranks, source, since))
        since = self._pace.asked(since) if draft.peer is not None else self._pace.breaks_off(since)
        transfer = self._transfer(draft, group, ranks, draft.peer, since)
        if transfer is None:
            return launch()
        due = self._board.ask(transfer)
        return self._held(launch(), draft, transfer, due)

    def _held(
        self,
        work: dist.Work,
        draft: Draft,
        transfer: Transfer | Callable[[int], Transfer | None],
        due: float | None = None,
    ) -> Held:
        self._pace.goes_on(time.monotonic())
        pace = self._pace if draft.peer is not None else None
        return Held(work, draft.outputs, self._device, self._board, transfer, draft.payload, due, pace)

    def _transfer(
        self, draft: Draft, group: str, ranks: tuple[int, ...], peer: int | None, asked: float
    ) -> Transfer | None:
        """What this operation is on the links; None where it crosses no slow one. peer: a rank of the group."""
        links, n = self._links, len(ranks)
        if peer is None:
            rounds, volume = links.collectives.get(draft.name, {}).get(n, (0.0, 0.0))
            name = self._numbered(f"{group}/c")
            if not links.among(ranks) or (rounds, volume) == (0.0, 0.0):
                return None
            occupied = volume * _whole_buffer(draft, n) / links.bandwidth
            return Transfer(name, ranks, ranks, occupied, rounds * links.latency, asked)
        ends = (self._rank, ranks[peer]) if draft.name == "send" else (ranks[peer], self._rank)
        if not links.between(*ends):
            return None
        name = self._numbered(f"{group}/{ends[0]}>{ends[1]}/{draft.tag}")
        return Transfer(name, ends[:1], ends[1:], draft.payload / links.bandwidth, links.latency, asked)

    def _numbered(self, name: str) -> str:
        """The n-th collective of a group, or message of a pair, is the n-th on its other ranks too."""
        with self._counting:
            self._counts[name] += 1
            return f"{name}/{self._counts[name]}"


def _whole_buffer(draft: Draft, n: int) -> int:
    """The S of the formulas, which in gather and scatter only the root holds whole."""
    pieces = {"gather": draft.inputs, "scatter": draft.outputs}.get(draft.name)
    return draft.payload if pieces is None else n * nbytes(pieces)
