"""`Trace`: a run, and the questions one can ask of it. How each is answered is in a module of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from kit.trace import chrome, io, match, memory, timeline
from kit.trace.facts import Message, Operation, Position, Record, Source, Stop
from kit.trace.overlap import Overlap, measure
from kit.trace.text import is_message
from kit.trace.traffic import Traffic, received, sent


@dataclass(frozen=True)
class Trace(Record):
    """A run: measured on ranks or predicted by a model, the same type.

    Questions that name a rank raise ValueError for one that the trace does not have.
    """

    def source(self, file: str) -> Source | None:
        return next((s for s in self.sources if s.file == file), None)

    def stop(self, rank: int, position: int) -> Stop | None:
        """The stop a rank stood at, or had last passed, at a position of the record."""
        index = self.positions[position].states[rank].stop
        return self.ranks[rank].stops[index] if index >= 0 else None

    def until(self, position: int) -> Trace:
        """The trace as it was at a position (negative: counted from the end): ask it any question.

        Later stops, operations and times are gone. Raises ValueError for a position that was not recorded.
        """
        if not -len(self.positions) <= position < len(self.positions):
            raise ValueError(
                f"there is no position {position}: this trace has {len(self.positions)}, counted from 0"
                if self.positions
                else "this trace has no positions: only a stepped run has them"
            )
        index = position % len(self.positions)
        if index == len(self.positions) - 1:
            return self
        reached = self.positions[index]
        moment = self._moment(reached)
        ranks = tuple(rank.until(reached.states[rank.rank], moment) for rank in self.ranks)
        return replace(self, ranks=ranks, positions=self.positions[: index + 1])

    # ------------------------------------------------------------------------------------------ who sent what to whom

    def bytes_sent(self, rank: int | None = None) -> Traffic:
        """Bytes that a rank (None: all ranks together) handed out: payload, algorithmic and wire, never mixed.

        Operations whose data never moved, such as a send that nobody received, count nothing.
        """
        return self._total(rank, sent)

    def bytes_received(self, rank: int | None = None) -> Traffic:
        """Bytes that a rank (None: all ranks together) took in, by kind; as `bytes_sent`."""
        return self._total(rank, received)

    def messages(self, rank: int | None = None) -> tuple[Message, ...]:
        """Every send, in order of issue, with the receive that met it; with a rank: those it sends or receives."""
        self._check(rank)
        everything = match.messages(self)
        return tuple(each for each in everything if rank is None or rank in (each.source, each.destination))

    def collectives(self, rank: int | None = None) -> tuple[Operation, ...]:
        """Every rank's part in every operation that is not a send or a receive, rank by rank, in order of issue."""
        self._check(rank)
        ranks = self.ranks if rank is None else (self.ranks[rank],)
        return tuple(op for one in ranks for op in one.operations if not is_message(op.name))

    def unmatched(self) -> tuple[Operation, ...]:
        """Operations that still miss a participant: a send without its receive, a lonely collective."""
        return tuple(op for entries in self.by_match.values() if not match.is_complete(entries) for op in entries)

    def mismatches(self) -> tuple[str, ...]:
        """What the participants of operations disagreed on, a sentence each; empty when they agreed."""
        return match.mismatches(self)

    # ------------------------------------------------------------------------------------------ who did what when

    def spans(self) -> tuple[timeline.Span, ...]:
        """What every rank did when, in seconds from 0; a stepped run without the time its person took."""
        return self._spans

    def waiting_time(self, rank: int) -> float:
        """Seconds a rank's code stood still because another had not come yet, on the axis of `spans`.

        A wait that has not ended counts in a recorded run as far as it was seen; in a stepped run it does not count,
        since its length is the person's.
        """
        return self._time(rank, "wait")

    def exposed_communication(self, rank: int) -> float:
        """Seconds a rank's code stood in wait while data moved: communication that its own computing did not hide."""
        return self._time(rank, "communicate")

    def overlap(self, step: int = -1) -> Overlap:
        """What computing hid of a training step's communication (negative: steps are counted from the last).

        Raises ValueError for a stepped run, whose times are the person's, and for a step that the run does not have.
        """
        return measure(self, step)

    # ------------------------------------------------------------------------------------------ who held how much

    def peak_memory(self, rank: int) -> int:
        """The most bytes a rank held, by the method its stops name; 0 without stops."""
        self._check(rank)
        return max((max(stop.memory.peak, stop.memory.now) for stop in self.ranks[rank].stops), default=0)

    def holdings(self) -> memory.Holdings:
        """What every rank held over the run, by kind of memory. ValueError where nobody accounted for it."""
        return memory.holdings(self)

    # ------------------------------------------------------------------------------------------ files

    def save(self, path: str | Path) -> Path:
        """Write the trace to one file, which `Trace.load` reads back exactly."""
        return io.save(self, path)

    @staticmethod
    def load(path: str | Path) -> Trace:
        """Read a file that `save` wrote. Raises ValueError for a file of another version or a broken one."""
        return io.load(Trace, path)

    def chrome(self, path: str | Path) -> Path:
        """Write the time axis for chrome://tracing or ui.perfetto.dev: a track per rank, an arrow per message."""
        return chrome.write(self, self.spans(), path)

    # ------------------------------------------------------------------------------------------ worked out

    @cached_property
    def _spans(self) -> tuple[timeline.Span, ...]:
        return timeline.lay_out(self)

    def _check(self, rank: int | None) -> None:
        if rank is not None and not 0 <= rank < len(self.ranks):
            raise ValueError(f"the trace has no rank {rank}: choose one of 0 to {len(self.ranks) - 1}")

    def _total(self, rank: int | None, of: Callable[[Operation], Traffic]) -> Traffic:
        self._check(rank)
        moved = [op for entries in self.by_match.values() if match.moved(entries) for op in entries]
        return sum((of(op) for op in moved if rank is None or op.rank == rank), Traffic(0, 0.0, 0))

    def _time(self, rank: int, kind: timeline.Kind) -> float:
        self._check(rank)
        stepped = self.meta.mode == "step"
        return sum(
            span.end - span.start
            for span in self.spans()
            if span.rank == rank and span.kind == kind and span.lane == 0 and not (span.open and stepped)
        )

    def _moment(self, position: Position) -> int:
        """When a position was seen. All ranks are seen at once, so the latest time that any state knows will do."""
        known = [moment for state in position.states for moment in (state.now, state.since) if moment is not None]
        known += [self.ranks[state.rank].stops[state.stop].time for state in position.states if state.stop >= 0]
        return max(known, default=0)
