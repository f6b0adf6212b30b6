"""The questions a trace answers, as its methods: thin, each calls the module that knows the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kit.trace.facts import Operation, Trace
    from kit.trace.holdings import Holdings
    from kit.trace.overlap import Overlap
    from kit.trace.questions import Message
    from kit.trace.timeline import Span
    from kit.trace.traffic import Traffic


Answer = TypeVar("Answer")


class Questions:
    """What `Trace` inherits. What exactly an answer means is said where it is worked out."""

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles carry the facts alone."""
        return {name: value for name, value in self.__dict__.items() if name != "_known"}

    def until(self, position: int) -> Trace:
        """The trace as it was at a position: later stops, operations and times are gone; ask it any question."""
        from kit.trace.until import until

        return until(_trace(self), position)

    def bytes_sent(self, rank: int | None = None) -> Traffic:
        """Bytes handed out by a rank (None: by all together): payload, algorithmic and wire, never mixed."""
        from kit.trace.questions import bytes_sent

        return bytes_sent(_trace(self), rank)

    def bytes_received(self, rank: int | None = None) -> Traffic:
        """Bytes taken in by a rank (None: by all together): payload, algorithmic and wire, never mixed."""
        from kit.trace.questions import bytes_received

        return bytes_received(_trace(self), rank)

    def messages(self, rank: int | None = None) -> tuple[Message, ...]:
        """Every send with the receive that met it, in order of issue; with a rank: those it sends or receives."""
        from kit.trace.questions import messages

        return messages(_trace(self), rank)

    def collectives(self, rank: int | None = None) -> tuple[Operation, ...]:
        """Every rank's part in every operation that is not a send or a receive."""
        from kit.trace.questions import collectives

        return collectives(_trace(self), rank)

    def unmatched(self) -> tuple[Operation, ...]:
        """Operations that still miss a participant."""
        from kit.trace.questions import unmatched

        return unmatched(_trace(self))

    def peak_memory(self, rank: int) -> int:
        """The most bytes a rank held at its stops; 0 without stops."""
        from kit.trace.questions import peak_memory

        return peak_memory(_trace(self), rank)

    def holdings(self) -> Holdings:
        """What every rank held over the run, by kind of memory. ValueError where nobody accounted for it."""
        from kit.trace.holdings import holdings

        return holdings(_trace(self))

    def waiting_time(self, rank: int) -> float:
        """Seconds a rank's code stood still because another had not come yet."""
        from kit.trace.questions import waiting_time

        return waiting_time(_trace(self), rank)

    def exposed_communication(self, rank: int) -> float:
        """Seconds a rank's code stood in wait while data moved: what its own computing did not hide."""
        from kit.trace.questions import exposed_communication

        return exposed_communication(_trace(self), rank)

    def overlap(self, step: int = -1) -> Overlap:
        """What computing hid of a training step's communication (negative: steps are counted from the last)."""
        from kit.trace.overlap import overlap

        return overlap(_trace(self), step)

    def spans(self) -> tuple[Span, ...]:
        """What every rank did when, in seconds from 0; a stepped run without the time its person took."""
        from kit.trace.timeline import spans

        return spans(_trace(self))

    def mismatches(self) -> tuple[str, ...]:
        """What the participants of operations disagreed on, a sentence each; empty when they agreed."""
        from kit.trace.compare import mismatches

        return mismatches(_trace(self))

    def save(self, path: str | Path) -> Path:
        """Write the trace to one file, which `Trace.load` reads back exactly."""
        from kit.trace.store import save

        return save(_trace(self), path)

    @staticmethod
    def load(path: str | Path) -> Trace:
        """Read a file that `save` wrote. Raises ValueError for a file of another version or a broken one."""
        from kit.trace.store import load

        return load(path)

    def chrome(self, path: str | Path) -> Path:
        """Write the time axis for chrome://tracing or ui.perfetto.dev: a track per rank, an arrow per message."""
        from kit.trace.chrome import write

        return write(_trace(self), path)


def once(trace: Trace, work_out: Callable[[Trace], Answer]) -> Answer:
    """What follows from a trace follows once: facts do not change, and views ask again at every step."""
    known: dict[Any, Any] = trace.__dict__.setdefault("_known", {})
    if work_out not in known:
        known[work_out] = work_out(trace)
    return cast("Answer", known[work_out])


def _trace(asked: Questions) -> Trace:
    return cast("Trace", asked)
