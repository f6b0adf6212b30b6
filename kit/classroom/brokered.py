"""A rank whose every operation is done by the broker at the other end of its one line."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist

from kit.classroom import inert
from kit.classroom.letters import Asks, At, FromRank, GaveUp, Given, HasEnded, Wants, sealed
from kit.probe import blackbox
from kit.probe.accelerator import CPU
from kit.probe.backend import Launch, ObservedGroup, Watch, register
from kit.probe.blackbox import Blackbox
from kit.probe.ledger import Entry, caller
from kit.probe.operations import OperationCall, dtype_name, reduce_name
from kit.probe.posted import PostedWork, PostingRun
from kit.probe.run import could_not_begin
from kit.probe.threads.world import CallsHandedBack
from kit.probe.world import World, install, seed_everything
from kit.protocol.messages import AtStop, Begin, RunNews
from kit.protocol.wire import Channel
from kit.trace.facts import Failure, Place

if TYPE_CHECKING:
    import socket


class Line:
    """To the broker. Letters may be sent from any thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket, self._sending = sock, threading.Lock()
        self.told: Channel[Begin | Given, Any] = Channel(sock)

    def send(self, letter: FromRank) -> None:
        with self._sending:
            self._socket.sendall(sealed(letter))


def live(rank: int, sock: socket.socket) -> None:
    """From the order to begin to the end of the function."""
    line = Line(sock)
    begin = cast("Begin", line.told.receive())
    torch.set_num_threads(1)
    seed_everything(rank, CPU)
    watch = Watch(CPU)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), MASTER_ADDR="localhost", MASTER_PORT="0")
    world = BrokeredWorld(rank, "gloo", watch)
    world.join("world", begin.task.size)
    try:
        run = BrokeredRun(line, begin, rank)
    except Exception as error:  # anything that what is shipped does while it is imported
        line.send(_ended(could_not_begin(begin.task, rank, error).error))
        return
    watch.observer = run
    world.during_run(run.worker)
    threading.Thread(target=run.listen, daemon=True).start()
    run.body()


class BrokeredWorld(World):
    """No rank connects to another."""

    def _take_charge(self) -> Any:
        register(lambda: self.watch, lambda options: cast("dist.ProcessGroup", CallsHandedBack()))
        return install(lambda: self)

    def rendezvous(self, name: str) -> dist.Store:
        """In name only."""
        return dist.PrefixStore(name, dist.HashStore())


class BrokeredRun(PostingRun["BrokeredWork"]):
    def __init__(self, line: Line, begin: Begin, rank: int) -> None:
        super().__init__(begin, rank, self._tell, Blackbox(blackbox.create(rank + 1), rank), CPU)
        self.line = line
        self._asking = threading.Lock()

    def start(self) -> None:
        torch.autograd.set_multithreading_enabled(False)  # backward and its hooks stay in the rank's own thread
        self.released = time.monotonic_ns()

    def end(self) -> None:
        """The broker knows what it did."""

    def listen(self) -> None:
        """In a thread of its own: takes in what the broker gives."""
        while (given := self.line.told.receive()) is not None:
            assert isinstance(given, Given)
            work = self.works.pop(given.index)
            if given.source is not None:
                self.sender_found(work, given.source)
            work.take(given)
        os._exit(0)  # there is nobody left to be a rank for

    def perform(self, group: ObservedGroup, call: OperationCall, launch: Launch) -> dist.Work:
        called_with: Any = launch()
        rows = call.name == "all_to_all" and isinstance(called_with[0], torch.Tensor)
        splits = tuple(map(int, called_with[3])) if rows else None  # output, input, rows from each, rows for each
        with self._asking:
            entry = self.ledger.open(call, group.label, group.ranks, caller(2))
            return self._ask(entry, call, splits)

    def meet(self, entry: Entry, call: OperationCall) -> BrokeredWork:
        return self._ask(entry, call, None)

    def _ask(self, entry: Entry, call: OperationCall, splits: tuple[int, ...] | None) -> BrokeredWork:
        works_in_place = call.whole == "inout"
        self.works[entry.index] = work = BrokeredWork(self, entry, call)
        self.line.send(
            Asks(
                entry.index,
                entry.issued,
                call.name,
                entry.group,
                tuple(entry.ranks),
                tuple(tensor.detach() for tensor in call.inputs),
                () if works_in_place else tuple((dtype_name(t.dtype), tuple(map(int, t.shape))) for t in call.outputs),
                tuple((int(storage), int(offset)) for _, storage, offset, *_ in entry.seen),
                call.whole,
                call.root,
                call.peer,
                call.tag,
                None if call.reduce is None else reduce_name(call.reduce),
                splits,
                _at(entry.place),
            )
        )
        return work

    def _tell(self, news: RunNews) -> None:
        """What any run posts: of this one, the broker is told its end alone."""
        if isinstance(news, AtStop):
            output = tuple((part.stream, part.text) for part in news.stop.output)
            result = None if news.result is None else news.result.opened()
            self.line.send(_ended(news.error, output, result))


class BrokeredWork(PostedWork):
    def __init__(self, run: BrokeredRun, entry: Entry, call: OperationCall) -> None:
        super().__init__(entry, call, CPU)
        self._run, self._outputs = run, call.outputs
        self._wanted = False

    def _want(self, stands: bool, gives_up: bool = False) -> None:
        self._wanted = True
        self._run.line.send(Wants(self.entry.index, stands, gives_up, _at(self._run.ledger.place())))

    def stand(self, since: int, limit: float | None) -> None:
        self._want(stands=True, gives_up=limit is not None)
        self.done.wait(limit)

    def gave_up(self, sentence: str) -> None:
        super().gave_up(sentence)
        self._run.line.send(GaveUp(self.entry.index, sentence))

    def is_completed(self) -> bool:
        if not self._wanted:
            self._want(stands=False)
        return super().is_completed()

    def get_future(self) -> torch.futures.Future[Any]:
        """Handed out when it has come: code in C++ that waits for it would not say so."""
        if not self.done.is_set():
            self.stand(time.monotonic_ns(), limit=None)
        return super().get_future()

    def take(self, given: Given) -> None:
        if given.refused:
            self.refuse(given.error or "")
        elif given.error is not None:
            self.fail(RuntimeError(given.error))
        else:
            with torch.no_grad():
                for mine, its in zip(self._outputs, inert.decode(given.outputs), strict=True):
                    mine.copy_(its.reshape(mine.shape))
            self.finish()


def _at(place: Place | None) -> At | None:
    return None if place is None else (place.file, place.line, place.function)


def _ended(error: Failure | None, output: tuple[tuple[str, str], ...] = (), result: bytes | None = None) -> HasEnded:
    return HasEnded(
        None if error is None else (error.kind, error.message, error.traceback, error.elsewhere),
        None if error is None else _at(error.place),
        output,
        None if result is None else torch.frombuffer(bytearray(result), dtype=torch.uint8),
    )
