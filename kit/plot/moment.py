"""What was true at one position of a trace: which operations were issued, which were still under way, who stood where.

A view must draw the same picture live and in replay, so nothing here looks past the position it is asked about.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kit.trace.facts import Frame, Operation, Place, Position, RankState
    from kit.trace.trace import Trace


def position_at(trace: Trace, position: int) -> Position:
    """The position; raises ValueError when the trace has none, IndexError when it is out of range."""
    if not trace.positions:
        raise ValueError(
            "this trace has no positions: it was recorded at full speed; step the function to see its moments"
        )
    return trace.positions[position]


def issued(trace: Trace, position: int, rank: int) -> tuple[Operation, ...]:
    """The operations a rank had issued by then, oldest first."""
    state = position_at(trace, position).states[rank]
    return trace.ranks[rank].operations[: state.operations]


def is_done(operation: Operation, state: RankState) -> bool:
    """Whether the operation had ended when the rank was seen in this state."""
    return operation.ended is not None and (state.now is None or operation.ended <= state.now)


def pending(trace: Trace, position: int, rank: int) -> tuple[Operation, ...]:
    """The operations a rank had issued that had not ended."""
    state = position_at(trace, position).states[rank]
    return tuple(op for op in issued(trace, position, rank) if not is_done(op, state))


def last_burst(trace: Trace, position: int, rank: int) -> tuple[Operation, ...]:
    """The operations a rank issued in the last line of its code that issued any."""
    operations = issued(trace, position, rank)
    state = position_at(trace, position).states[rank]
    stops = trace.ranks[rank].stops[: state.stop + 1]
    begins = max((stop.operations for stop in stops if stop.operations < len(operations)), default=0)
    return operations[begins:]


def scope(trace: Trace, position: int, rank: int) -> tuple[Frame, ...]:
    """A rank's frames, innermost first: the order in which a name is looked up."""
    stop = trace.stop(rank, position)
    return tuple(reversed(stop.frames)) if stop else ()


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a rank stands: in its own code, innermost first; empty when nothing is known."""

    rank: int
    places: tuple[Place, ...]
    finished: bool

    @property
    def here(self) -> Place | None:
        """Where it stands; for a finished rank the function it returned from."""
        if not self.places:
            return None
        return self.places[-1] if self.finished else self.places[0]

    def within(self, file: str, function: str) -> Place | None:
        """Its innermost place inside one function, or None."""
        return next((p for p in self.places if (p.file, p.function) == (file, function)), None)


def standing(trace: Trace, position: int, rank: int) -> Standing:
    """Where a rank stands, its callers included."""
    state = position_at(trace, position).states[rank]
    frames = tuple(frame.place for frame in scope(trace, position, rank))
    if state.place is None or state.phase == "finished":
        places = frames or ((state.place,) if state.place else ())
    else:
        outer = tuple(p for p in frames if (p.file, p.function) != (state.place.file, state.place.function))
        places = (state.place, *outer)
    return Standing(rank, places, state.phase == "finished")
