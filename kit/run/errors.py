"""What goes wrong on ranks, as one exception with the sentences a person reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kit import shown
from kit.trace.facts import PARTNER_LOST

if TYPE_CHECKING:
    from kit.trace.facts import Failure, Position
    from kit.trace.trace import Trace


class RankError(RuntimeError):
    """Ranks failed, waited for ever or disagreed. The message says who, where and what to do; `trace` holds the
    record, `panel()` shows it.
    """

    def __init__(self, message: str, trace: Trace, about: str = "") -> None:
        super().__init__(message)
        self.trace = trace
        self.about = about  # of a recording, that it is one

    def panel(self, predicted: Trace | None = None) -> Any:
        """Traffic and time by rank until it went wrong."""
        return shown.panel(self, predicted)

    def __reduce__(self) -> tuple[type[RankError], tuple[str, Trace, str]]:
        return type(self), (self.args[0], self.trace, self.about)


class NoRanks(RuntimeError):
    """Something needs ranks, and there are none and no recording of it. The message says why and what to do."""


class RanksHeld(RuntimeError):
    """Something that goes on by itself has the ranks. The message says what it is and how they come free."""


class NotFinished(RuntimeError):
    """Results were asked for before every rank had finished."""


def failures(position: Position) -> list[tuple[int, Failure]]:
    """(rank, failure) of every rank that failed by itself, not by being ended with the others."""
    return [(s.rank, s.error) for s in position.states if s.error is not None and s.error.kind != "RunAborted"]


def what_went_wrong(position: Position) -> str:
    """The sentences of the ranks that died or were stopped, of those that failed, then the verdict, each thing said
    once; one line each.
    """
    verdict = position.verdict or ""
    gone = [s for s in position.states if s.phase in ("dead", "stopped")]
    someone_died = any(s.phase == "dead" for s in gone)
    told: dict[str, str] = {f"rank {s.rank}": str(s) for s in gone if not (verdict and s.detail in verdict)}
    if any(verdict.startswith(f"rank {s.rank} ") for s in gone):
        told[verdict] = verdict
    for state in position.states:
        error = state.error
        if error is not None and (error.kind == "RunAborted" or someone_died and _connection_lost(error)):
            continue  # what the others suffered when one went
        if state.phase == "failed" and error is not None:
            told.setdefault(error.message, str(state) if error.kind != "MismatchedOperation" else error.message)
    if verdict:
        told.setdefault(verdict, verdict)
    return "\n".join(told.values())


def _connection_lost(error: Failure) -> bool:
    return error.kind == PARTNER_LOST


def with_traceback(error: RankError, position: Position) -> RankError:
    """The same error carrying the first failed rank's traceback, in the learner's own lines."""
    for rank, failure in [f for f in failures(position) if not _connection_lost(f[1]) and f[1].traceback][:1]:
        error.add_note(f"--- on rank {rank} ---\n{failure.traceback}")
    return error
