"""A slower network: real messages, handed over when they would have come.

A transfer of m bytes takes its links for m / bandwidth seconds and arrives `latency` seconds after its last byte has
left; a rank has one link out and one link in, which work at the same time. It begins when both sides have asked for it
and their links are free, in the order in which transfers come to that. Nothing is held back before both sides are
there: a rank that waits for a partner waits as ever. Collectives that the library runs inside itself take what the
table handed in says (rounds x latency + volume x bytes / bandwidth) from their last rank's call on, since their
messages are not seen one by one.

The real transfer goes at once, and its time is part of the slow one's: `wait` comes back when both are over. Whoever
asks last knows when that is and tells the others (`board`), so nobody guesses. A message that follows another at once
counts from that one's arrival by the model (`delayed.Pace`), so this machine's delays do not add up along a chain; but
for that nothing comes earlier than the model says after it was asked for.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

import torch.distributed as dist

from kit.probe.accelerator import Accelerator
from kit.probe.links.board import Board, Transfer
from kit.probe.links.delayed import Awaited, DelayedWork, Pace
from kit.probe.links.scheduling import SHORT, ask_for_turns
from kit.probe.operations import OperationCall
from kit.protocol.links import Links


class Throttle:
    """The slow links of one rank for one run."""

    def __init__(self, links: Links, rank: int, accelerator: Accelerator, run: int) -> None:
        self._links = links
        self._rank = rank
        self._accelerator = accelerator
        self._board = Board(links.board, run)
        self._board.come(rank)
        self._counts: Counter[str] = Counter()
        self._counting = threading.Lock()
        self._pace = Pace(0 if accelerator.runs_ahead else threading.get_ident())
        ask_for_turns(SHORT)

    def end(self) -> None:
        """The run is over: nobody waits for more, and this process is as it was."""
        self._board.closed = True
        ask_for_turns(0)

    def issue(
        self,
        call: OperationCall,
        group: str,
        ranks: tuple[int, ...],
        launch: Callable[[], dist.Work],
        asked: int | None,
    ) -> dist.Work:
        """Launches an operation; its Work is over when it would be. asked: when it was asked for, in ns; None: now."""
        since = time.monotonic() if asked is None else asked * 1e-9
        if call.peer == -1:
            if not any(self._links.between(self._rank, r) for r in ranks):
                return launch()
            since = self._pace.asked(since)
            return self._delayed(launch(), call, lambda source: self._transfer(call, group, ranks, source, since))
        since = self._pace.asked(since) if call.peer is not None else self._pace.breaks_off(since)
        transfer = self._transfer(call, group, ranks, call.peer, since)
        if transfer is None:
            return launch()
        due = self._board.ask(transfer)
        return self._delayed(launch(), call, transfer, due)

    def _delayed(
        self, work: dist.Work, call: OperationCall, transfer: Awaited, due: float | None = None
    ) -> DelayedWork:
        self._pace.goes_on(time.monotonic())
        pace = self._pace if call.peer is not None else None
        return DelayedWork(work, call.outputs, self._accelerator, self._board, transfer, call.payload, due, pace)

    def _transfer(
        self, call: OperationCall, group: str, ranks: tuple[int, ...], peer: int | None, asked: float
    ) -> Transfer | None:
        """What this operation is on the links; None where it crosses no slow one. peer: a rank of the group."""
        links, n = self._links, len(ranks)
        if peer is None:
            rounds, volume = links.collectives.get(call.name, {}).get(n, (0.0, 0.0))
            name = self._numbered(f"{group}/c")
            if not links.among(ranks) or (rounds, volume) == (0.0, 0.0):
                return None
            occupied = volume * _whole_buffer(call, n) / links.bandwidth
            return Transfer(name, ranks, ranks, occupied, rounds * links.latency, asked)
        ends = (self._rank, ranks[peer]) if call.name == "send" else (ranks[peer], self._rank)
        if not links.between(*ends):
            return None
        name = self._numbered(f"{group}/{ends[0]}>{ends[1]}/{call.tag}")
        return Transfer(name, ends[:1], ends[1:], call.payload / links.bandwidth, links.latency, asked)

    def _numbered(self, name: str) -> str:
        """The n-th collective of a group, or message of a pair, is the n-th on its other ranks too."""
        with self._counting:
            self._counts[name] += 1
            return f"{name}/{self._counts[name]}"


def _whole_buffer(call: OperationCall, n: int) -> int:
    """The S of the formulas, which in gather and scatter only the root holds whole."""
    pieces = {"gather": call.inputs, "scatter": call.outputs}.get(call.name)
    return call.payload if pieces is None else n * sum(piece.nbytes for piece in pieces)
