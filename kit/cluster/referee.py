"""What the host agent knows of a run: where every rank is, who waits for whom, when a motion is over.

A state machine without sockets or clocks of its own: messages in, (destination, message) out, where a destination is
a rank or 'kernel'. All events of all ranks pass through it in one order, which is what makes 'this rank waits' and
'this is a deadlock' facts and not guesses.
"""

from __future__ import annotations

import mmap
import time
from dataclasses import dataclass

from kit.cluster.books import Book, at_line
from kit.cluster.matching import Meeting, Table
from kit.cluster.verdicts import Recorded, died, held_up
from kit.probe.blackbox import Blackbox
from kit.probe.wire import Message
from kit.trace.facts import Operation, RankState
from kit.trace.sentences import operation_words
from kit.trace.waits import deadlock

Deliveries = list[tuple[int | str, Message]]
REPLACES_WHILE_WAITING = ("finish", "to_line", "to_collective", "out")


@dataclass
class Motion:
    id: int
    deadline: int
    ranks: frozenset[int]


class Referee:
    def __init__(self, world: int, blackbox: mmap.mmap) -> None:
        self._books = [Book() for _ in range(world)]
        self._boxes = [Blackbox(blackbox, r) for r in range(world)]
        self._table = Table()
        self._recorded: Recorded | None = None
        self._run: int | None = None
        self._motion: Motion | None = None
        self._late = False  # a motion's time ran out while ranks were running

    # -- what comes in -------------------------------------------------------------------------------------------

    def from_kernel(self, message: Message) -> Deliveries:
        kind = message["kind"]
        if kind == "run":
            return self._begin(message)
        if message.get("run") != self._run:
            return []
        if kind == "move":
            return self._move(message)
        if kind == "abort":
            return [(r, message) for r, book in enumerate(self._books) if book.phase is not None and not book.gone]
        raise AssertionError(f"the referee knows no {kind!r}")

    def from_rank(self, rank: int, message: Message) -> Deliveries:
        if message.get("run") != self._run:
            return []
        out = getattr(self, "_on_" + message["kind"])(rank, message)
        return out + self._settle()

    def lost(self, rank: int, detail: str) -> Deliveries:
        book = self._books[rank]
        book.gone, book.held_up, book.detail = True, False, detail
        if book.phase in (None, "finished", "failed"):
            return []
        last_line = self._boxes[rank].line()
        book.phase, book.since = "dead", time.monotonic_ns()
        book.place = at_line(book.place, last_line)
        last = self._boxes[rank].last_operation(rank)
        out = self._verdict(died(rank, detail, self._boxes), last) if self._recorded is not None else []
        return out + self._aside(f"rank {rank} died")

    def stopped(self, rank: int, detail: str) -> Deliveries:
        book = self._books[rank]
        book.held_up, book.detail = True, detail  # between two runs too: the next one begins with it
        if book.phase in (None, "finished", "failed"):
            return []
        out = self._verdict(held_up(rank, detail)) if self._recorded is not None else []
        return out + self._aside(f"rank {rank} was stopped")

    def continued(self, rank: int) -> Deliveries:
        book = self._books[rank]
        book.held_up, book.detail = False, ""
        return (
            self._aside(f"rank {rank} was continued") if book.phase not in (None, "finished", "failed", "dead") else []
        )

    def tick(self, now: int) -> Deliveries:
        if self._motion is None or now < self._motion.deadline:
            return []
        return self._over(self._motion)

    def next_deadline(self) -> int | None:
        return self._motion.deadline if self._motion else None

    # -- orders from the kernel ----------------------------------------------------------------------------------

    def _begin(self, message: Message) -> Deliveries:
        size, now = message["size"], time.monotonic_ns()
        self._run = message["run"]
        self._table = Table()
        self._recorded = Recorded(size) if message["mode"] == "record" else None
        for rank, book in enumerate(self._books):
            gone, held_up, detail = book.gone, book.held_up, book.detail
            self._books[rank] = Book(gone=gone, held_up=held_up, detail=detail)
            if rank < size:
                self._books[rank].phase, self._books[rank].since = "dead" if gone else "running", now
        self._motion, self._late = None, False
        if self._recorded is None:
            self._motion = Motion(message["motion"], now + message["patience"], frozenset(range(size)))
        shared = {key: value for key, value in message.items() if key != "arguments"}
        there = [r for r in range(size) if not self._books[r].gone]
        out: Deliveries = [(r, {**shared, "arguments": message["arguments"][r]}) for r in there]
        return out + self._judge_beginning(size)

    def _move(self, message: Message) -> Deliveries:
        out: Deliveries = []
        for rank in message["ranks"]:
            book = self._books[rank]
            if book.phase == "paused":
                book.phase, book.since = "running", time.monotonic_ns()
            elif book.phase == "waiting" and message["how"] not in REPLACES_WHILE_WAITING:
                continue
            if book.phase in ("running", "waiting"):
                out.append((rank, message))
        deadline = time.monotonic_ns() + message["patience"]
        self._motion = Motion(message["motion"], deadline, frozenset(message["ranks"]))
        return out + self._settle()

    # -- news from a rank ----------------------------------------------------------------------------------------

    def _on_begun(self, rank: int, message: Message) -> Deliveries:
        return []

    def _on_ended(self, rank: int, message: Message) -> Deliveries:
        return [("kernel", {**message, "rank": rank})]

    def _on_unloaded(self, rank: int, message: Message) -> Deliveries:
        book = self._books[rank]
        book.phase, book.since, book.error = "failed", message["time"], message["error"]
        return [("kernel", {**message, "rank": rank})]

    def _on_stop(self, rank: int, message: Message) -> Deliveries:
        book, stop = self._books[rank], message["stop"]
        book.phase, book.since, book.stop = message["phase"], stop.time, stop.index
        book.operation, book.waits_in, book.operations = stop.about_to, None, stop.operations
        book.error = message.get("error")
        if book.error is not None and book.error.place is not None:
            book.place = book.error.place
        elif stop.frames:
            book.place = stop.frames[-1].place
        out: Deliveries = [("kernel", {**message, "rank": rank})]
        return out + self._judge_record()

    def _on_post(self, rank: int, message: Message) -> Deliveries:
        operation: Operation = message["operation"]
        book = self._books[rank]
        book.operations = operation.index + 1
        book.open[operation.index] = operation
        out: Deliveries = [("kernel", {"kind": "operation", "run": self._run, "rank": rank, "operation": operation})]
        meeting = self._table.post(operation)
        return out if meeting is None else out + self._meet(meeting)

    def _on_wait(self, rank: int, message: Message) -> Deliveries:
        book, index = self._books[rank], message["index"]
        if index in book.open and book.phase == "running":
            operation = book.open[index]
            book.phase, book.since, book.waits_in = "waiting", message["since"], index
            # where it waits, which is not where it issued the operation when that was asynchronous
            book.place = message.get("place") or operation.place or book.place
            book.operation = operation_words(operation)
        return []

    def _on_operation(self, rank: int, message: Message) -> Deliveries:
        return [("kernel", {**message, "rank": rank})]

    def _on_operations(self, rank: int, message: Message) -> Deliveries:
        """All operations of a recorded function that has ended."""
        if self._recorded is not None:
            self._recorded.hear(rank, message["operations"], None, ended=True)
            if self._books[rank].phase == "waiting":  # what it waited in has ended after all; its stop is on the way
                self._books[rank].phase = "running"
        return [("kernel", {**message, "rank": rank})]

    def _on_report(self, rank: int, message: Message) -> Deliveries:
        """A recorded rank says what it has issued; the first that waits long makes all the others say so too."""
        assert self._recorded is not None
        self._recorded.hear(rank, message["operations"], message["waiting"], message["answer"])
        book = self._books[rank]
        if book.phase in ("running", "waiting"):
            book.place = message["place"] or book.place
            waiting = message["waiting"]
            book.phase = "running" if waiting is None else "waiting"
            book.operation = None if waiting is None else operation_words(message["operations"][waiting])
            book.since = message["operations"][waiting].issued if waiting is not None else book.since
        out: Deliveries = [("kernel", {**message, "kind": "operations", "rank": rank})]
        if message["waiting"] is not None:
            able = [r for r, b in enumerate(self._books) if not b.gone and not b.held_up]
            out += [(r, {"kind": "report", "run": self._run}) for r in self._recorded.ask(able)]
        return out + self._judge_record()

    # -- conclusions ---------------------------------------------------------------------------------------------

    def _meet(self, meeting: Meeting) -> Deliveries:
        out: Deliveries = []
        for operation in meeting.operations:
            book = self._books[operation.rank]
            book.open.pop(operation.index, None)
            order: Message = {"kind": "launch", "run": self._run, "index": operation.index}
            if meeting.sentence is not None:
                order = {**order, "kind": "refuse", "sentence": meeting.sentence}
            elif meeting.source is not None and operation.name == "recv":
                order["source"] = meeting.source
            if book.phase == "waiting" and book.waits_in == operation.index:
                book.phase, book.since, book.waits_in, book.operation = "running", time.monotonic_ns(), None, None
            if not book.gone:
                out.append((operation.rank, order))
        return out

    def _judge_record(self) -> Deliveries:
        sentence = self._recorded.verdict(self.states()) if self._recorded is not None else None
        return [] if sentence is None else self._verdict(sentence)

    def _judge_beginning(self, size: int) -> Deliveries:
        """A recorded run that begins with a rank gone or stopped: nothing else would come of that rank."""
        if self._recorded is None:
            return []
        for rank, book in enumerate(self._books[:size]):
            if book.gone or book.held_up:
                return self._verdict((died if book.gone else held_up)(rank, book.detail))
        return []

    def _verdict(self, sentence: str, last: Operation | None = None) -> Deliveries:
        """last: what a dead rank was in; its partners may have gone on, and tell what they did of it when they end."""
        told = {"sentence": sentence, "states": self.states(), "last": last}
        return [("kernel", {"kind": "verdict", "run": self._run, **told})]

    def _settle(self) -> Deliveries:
        """Ends the motion once no rank runs. A rank stopped by a signal does not: it cannot."""
        if any(b.phase == "running" and not b.held_up for b in self._books):
            return []
        misfits = self._table.misfits()
        if misfits:
            return [delivery for meeting in misfits for delivery in self._meet(meeting)]
        if self._motion is not None:
            return self._over(self._motion)
        if self._late:
            return [self._changed("came to rest")]
        return []

    def _aside(self, what: str) -> Deliveries:
        """After something that no motion asked for."""
        if self._recorded is not None:
            return []
        return self._settle() if self._motion is not None else [self._changed(what)]

    def _changed(self, what: str) -> tuple[int | str, Message]:
        """Tells of states that changed while no motion was under way."""
        self._late = False
        states, verdict = self._judgement()
        return ("kernel", {"kind": "changed", "run": self._run, "what": what, "states": states, "verdict": verdict})

    def _judgement(self) -> tuple[tuple[RankState, ...], str | None]:
        states = self.states()
        return states, deadlock(states, {s.rank: s.waiting_for for s in states if s.phase == "waiting"})

    def _over(self, motion: Motion) -> Deliveries:
        self._motion = None
        states, verdict = self._judgement()
        self._late = any(s.phase == "running" for s in states)
        settled: Message = {
            "kind": "settled",
            "run": self._run,
            "motion": motion.id,
            "states": states,
            "verdict": verdict,
        }
        return [("kernel", settled)]

    def states(self) -> tuple[RankState, ...]:
        now = time.monotonic_ns()
        return tuple(
            book.state(rank, now, self._boxes[rank].line(), self._waited_for(rank, book))
            for rank, book in enumerate(self._books)
            if book.phase is not None
        )

    def _waited_for(self, rank: int, book: Book) -> tuple[int, ...]:
        if book.phase != "waiting":
            return ()
        if book.waits_in is not None:
            return self._table.missing(book.open[book.waits_in])
        return self._recorded.missing(rank) if self._recorded is not None else ()
