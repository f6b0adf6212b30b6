"""The broker: the one whom ranks behind walls can reach, so that all their traffic passes through it and is counted.

A rank asks for an operation and hands in its tensors; once all its ranks have asked for ones that match, the broker
does it and keeps the account. What a rank says of itself (its line, what it printed, how it failed) is for the reader;
operations, peers and bytes are what was handed in here.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from kit.classroom import inert
from kit.classroom.letters import Asks, At, FromRank, GaveUp, Given, HasEnded, Wants, letters_in
from kit.clusters.coordinator.coordinator import Coordinator
from kit.clusters.coordinator.run import ForKernel, ForRank
from kit.probe import blackbox
from kit.probe.blackbox import Blackbox, BlackboxReader
from kit.probe.code import Code
from kit.probe.ledger import Entry, Ledger
from kit.probe.operations import OperationCall
from kit.probe.threads.moves import MOVES
from kit.probe.threads.run import meet
from kit.protocol.messages import (
    AtStop,
    Begin,
    Launch,
    Operated,
    Operations,
    Posted,
    RankLost,
    Refuse,
    Run,
    Settled,
    Task,
    ToCoordinator,
    Waits,
)
from kit.protocol.wire import Mailbox
from kit.resources import reference_label
from kit.run.recorder import Recorder
from kit.trace.facts import Failure, Memory, Output, Place, Position, Stop
from kit.trace.text import POINT_TO_POINT

if TYPE_CHECKING:
    from kit.probe.shipping import Package

NAMES = MOVES.keys() | POINT_TO_POINT
WHOLES = ("in", "out", "inout")
MOST_OPERATIONS = 100_000  # of one rank
LONGEST = 100_000  # characters of what a rank says of itself


class Line:
    """To one rank. lost: says in words how the process at its other end ended."""

    def __init__(self, sock: socket.socket, lost: Callable[[], str]) -> None:
        self.socket, self.lost = sock, lost
        self.outbox: Mailbox[Any, Begin | Given] = Mailbox(sock)
        self.inbox = bytearray()
        self.open = True

    def read(self) -> list[FromRank]:
        """What has come. Raises inert.Refused for what is no letter."""
        try:
            data = self.socket.recv(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        self.open = bool(data)
        self.inbox += data
        return list(letters_in(self.inbox))


class _Told(Code):
    """Lines as ranks say they are; none outside the code that was handed in and the references."""

    def __init__(self, package: Package) -> None:
        super().__init__(package.sources, package.root_file, False)
        self._files = package.sources
        self.now: Place | None = None

    def place(self, frame: FrameType | None) -> Place | None:
        return self.now

    def of(self, at: At | None) -> Place | None:
        if at is None or not (at[0] in self._files or reference_label(at[0]) is not None):
            return None
        return Place(at[0], at[1], at[2][:LONGEST])


class _Part:
    """Of an operation, one rank's. It is over for the rank that has been given what came of it, and wanted that."""

    def __init__(self, entry: Entry, call: OperationCall, splits: Any) -> None:
        self.entry, self.call, self.splits = entry, call, splits
        self.done = self.given = False
        self.wanted_since: int | None = None
        self.refused = False
        self.source: int | None = None

    def finish(self) -> None:
        self.done, self.entry.ended = True, None

    def fail(self, error: BaseException) -> None:
        self.entry.error = f"{type(error).__name__}: {error}"
        self.finish()

    def refuse(self, sentence: str) -> None:
        self.entry.error, self.refused = sentence, True
        self.finish()


class Broker:
    """One run of a function: the arguments are those of its package, and a line to each of its ranks."""

    def __init__(self, package: Package, task: Task, lines: Sequence[Line], meta: dict[str, Any]) -> None:
        self._task, self._arguments, self._lines = task, package.arguments, lines
        memory = blackbox.create(task.size)
        self._coordinator = Coordinator(task.size, BlackboxReader(memory))
        self._told = _Told(package)
        worker = 0  # no thread of this process
        self._ledgers = [Ledger(rank, self._told, worker, Blackbox(memory, rank)) for rank in range(task.size)]
        self._parts: list[list[_Part]] = [[] for _ in lines]
        self._known = [0] * task.size  # by rank: when it asked last, or was given something
        self._groups: dict[str, tuple[int, ...]] = {}
        self._settled: Settled | None = None
        self._ended: set[int] = set()
        self.recorder = Recorder(package, "record", meta)
        self.results: dict[int, bytes] = {}

    def run(self, deadline: float) -> Position | None:
        """Until nobody can go on, and where they are then; None at the deadline, by `time.monotonic`."""
        stepped = replace(self._task, mode="step")  # one motion that has no deadline
        self._hear(Run(stepped, self._arguments, patience=1 << 60))
        for rank, line in enumerate(self._lines):
            line.outbox.post(Begin(self._task, self._arguments[rank]))
        while self._settled is None and (left := deadline - time.monotonic()) > 0:
            self._turn(left)
        for rank, ledger in enumerate(self._ledgers):
            self.recorder.hear(Operations(self._task.run, rank, ledger.facts()))
        if self._settled is None:
            return None
        return Position("record", self._settled.states, self._settled.verdict)

    def _turn(self, left: float) -> None:
        open_ones = {line.socket.fileno(): (rank, line) for rank, line in enumerate(self._lines) if line.open}
        waiter = select.poll()
        for number, (_, line) in open_ones.items():
            line.outbox.flush()
            waiter.register(number, select.POLLIN | (select.POLLOUT if line.outbox.backlog else 0))
        for number, happened in waiter.poll(left * 1000):
            rank, line = open_ones[number]
            if happened & ~select.POLLOUT:
                self._read(rank, line)

    def _read(self, rank: int, line: Line) -> None:
        if rank in self._ended:  # what it says after its last word
            line.open = False
            return
        try:
            for letter in line.read():
                if rank not in self._ended:
                    self._take(rank, letter)
        except (inert.Refused, ValueError) as problem:
            self._gone(rank, f"it was ended: {problem}")
        else:
            if not line.open and rank not in self._ended:
                self._gone(rank, line.lost())

    def _gone(self, rank: int, detail: str) -> None:
        self._lines[rank].open = False
        self._ended.add(rank)
        self._hear(RankLost(0, rank, detail))

    # -------------------------------------------------------------------------------------------- what ranks write

    def _take(self, rank: int, letter: FromRank) -> None:
        match letter:
            case Asks():
                self._asks(rank, letter)
            case Wants():
                self._wants(rank, letter)
            case GaveUp(index, sentence):
                part = self._part(rank, index)
                if not part.done:
                    part.entry.error = sentence[:LONGEST]
                    self._hear(Operated(self._task.run, rank, part.entry.fact()))
            case HasEnded():
                self._has_ended(rank, letter)

    def _part(self, rank: int, index: int) -> _Part:
        if not 0 <= index < len(self._parts[rank]):
            raise ValueError("it named an operation that it had not asked for")
        return self._parts[rank][index]

    def _asks(self, rank: int, letter: Asks) -> None:
        call = self._call(rank, letter)
        self._told.now = self._told.of(letter.at)
        entry = self._ledgers[rank].open(call, letter.group, letter.ranks, None)
        if len(letter.where) == len(entry.seen) and all(0 <= n < 1 << 63 for said in letter.where for n in said):
            entry.seen = [(one[0], *said, *one[3:]) for one, said in zip(entry.seen, letter.where, strict=True)]
        # as it says, and not before what it depends on: it had asked for, and been given, what came before
        entry.issued = self._known[rank] = min(max(letter.asked, self._known[rank]), entry.issued)
        self._parts[rank].append(_Part(entry, call, letter.splits))
        self._hear(Posted(self._task.run, rank, entry.fact()))

    def _call(self, rank: int, letter: Asks) -> OperationCall:
        """What it asks for, as one asks in one memory. Raises ValueError for what no rank asks for that plays fair."""
        members = letter.ranks
        known = self._groups.setdefault(letter.group, members)
        size = len(members)
        fair = (
            letter.index == len(self._parts[rank]) < MOST_OPERATIONS
            and letter.name in NAMES
            and letter.whole in WHOLES
            and members == known
            and rank in members
            and len(set(members)) == size
            and all(0 <= member < self._task.size for member in members)
            and (letter.peer is None) == (letter.name not in POINT_TO_POINT)
            and (letter.peer is None or -1 <= letter.peer < size)
            and (letter.root is None or 0 <= letter.root < size)
            and (letter.whole != "inout" or not letter.outputs)
            and (letter.name != "send" or len(letter.inputs) == 1)
            and (letter.name != "recv" or len(letter.outputs) == 1)
        )
        if not fair:
            raise ValueError(f"it asked for {letter.name[:40]} as no rank does that plays fair")
        inputs = [tensor.detach() for tensor in letter.inputs]
        outputs = inputs if letter.whole == "inout" else [_empty(*each) for each in letter.outputs]
        return OperationCall(
            letter.name, inputs, outputs, letter.whole, letter.root, letter.peer, letter.tag, letter.reduce
        )

    def _wants(self, rank: int, letter: Wants) -> None:
        part = self._part(rank, letter.index)
        if part.wanted_since is None:
            part.wanted_since = time.monotonic_ns()
        if letter.stands and not part.done:
            place = self._told.of(letter.at)
            since = time.monotonic_ns()
            self._hear(Waits(self._task.run, rank, letter.index, since, place, letter.gives_up))
        self._give(rank, part)

    def _give(self, rank: int, part: _Part) -> None:
        if not part.done or part.given or part.wanted_since is None:
            return
        part.given, part.entry.ended = True, time.monotonic_ns()
        self._known[rank] = part.entry.ended
        part.entry.waits.append((part.wanted_since, part.entry.ended))
        failed = part.entry.error is not None
        outputs = b"" if failed else inert.encode(part.call.outputs)
        given = Given(part.entry.index, outputs, part.entry.error, part.refused, part.source)
        part.call.inputs, part.call.outputs = [], []
        self._lines[rank].outbox.post(given)

    def _has_ended(self, rank: int, letter: HasEnded) -> None:
        self._ended.add(rank)
        error = None
        if letter.error is not None:
            kind, message, traceback, elsewhere = letter.error
            words = (_text(kind), _text(message), _text(traceback))
            error = Failure(*words, self._told.of(letter.at), elsewhere)
        elif letter.result is not None:
            self.results[rank] = letter.result.numpy().tobytes()
        now = time.monotonic_ns()
        output = tuple(Output("stderr" if s == "stderr" else "stdout", _text(text)) for s, text in letter.output)
        unknown = Memory(0, 0, "not looked at behind walls")
        stop = Stop(rank, 0, now, (), unknown, output, len(self._parts[rank]))
        news = AtStop(self._task.run, rank, "failed" if error else "finished", stop, {}, (now, now), error)
        self.recorder.hear(news)
        self._hear(news)

    # ------------------------------------------------------------------------------------------ what comes of that

    def _hear(self, news: ToCoordinator) -> None:
        launched: list[_Part] = []
        for delivery in self._coordinator.hear(news, time.monotonic_ns()):
            match delivery:
                case ForKernel(Settled() as settled):
                    self._settled = settled
                case ForRank(rank, Refuse(index=index, sentence=sentence)):
                    self._parts[rank][index].refuse(sentence)
                    self._give(rank, self._parts[rank][index])
                case ForRank(rank, Launch(index=index, source=source)):
                    part = self._parts[rank][index]
                    if source is not None:
                        self._ledgers[rank].found_source(part.entry, source)
                        part.source = source
                    launched.append(part)
                case _:
                    continue
        if launched:
            meet(launched)
            for part in launched:
                self._give(part.entry.rank, part)


def _empty(dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype) or any(size < 0 for size in shape):
        raise ValueError("it asked for a tensor that cannot be")
    if len(shape) > 64 or _elements(shape) * kind.itemsize > inert.MOST:
        raise ValueError(f"it asked for a tensor of more than {inert.MOST // 1_000_000} MB")
    return torch.zeros(shape, dtype=kind)


def _elements(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _text(text: str) -> str:
    return text[:LONGEST].encode("utf-8", "replace").decode()
