"""Ranks in words: one calm sentence for every state a rank can be in.

The words beside a picture, the text of an error and `str()` of a state all come from here, so they always agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kit.trace.facts import Operation, Place, Position, RankState

POINT_TO_POINT = ("send", "recv")
ANY = -1  # the peer of a receive from any source that has met no sender yet
ENDED = {"finished": "finished without it", "failed": "failed without it", "dead": "died without it"}
ALIASES = {
    "isend": "send",
    "irecv": "recv",
    "all_reduce_coalesced": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_coalesced": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "all_to_all_single": "all_to_all",
}


def canonical(name: str) -> str:
    """One name for an operation that torch offers under several: 'isend' is 'send'."""
    return ALIASES.get(name, name)


def is_message(name: str) -> bool:
    """Whether an operation is a send or a receive rather than a collective."""
    return canonical(name) in POINT_TO_POINT


def counted(number: int, noun: str) -> str:
    """'1 message', '3 messages'."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(ranks: Iterable[int]) -> str:
    """'rank 1', 'ranks 0, 2, 3'; five or more neighbours are folded: 'ranks 0 to 15'."""
    numbers = sorted(set(ranks))
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = [
        text
        for run in runs
        for text in ([f"{run[0]} to {run[-1]}"] if len(run) >= 5 else [str(number) for number in run])
    ]
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {', '.join(texts)}"


def named(ranks: Iterable[int]) -> str:
    """As `listed`, for the middle of a sentence: 'rank 1', 'ranks 1 and 3', 'ranks 0, 2 and 3'."""
    head, comma, tail = listed(ranks).rpartition(", ")
    return f"{head} and {tail}" if comma else tail


def duration(nanoseconds: float) -> str:
    """A length of time for a person: '12 µs', '40 ms', '1.9 s', '2 min 5 s'."""
    seconds = nanoseconds / 1e9
    if seconds < 0.95e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.0995:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def size(shape: Sequence[int], dtype: str) -> str:
    """A tensor's shape and dtype in words: '4 x float32', '2 x 3 x int64', 'scalar float32'."""
    return " x ".join([*map(str, shape), dtype]) if shape else f"scalar {dtype}"


def operation_text(name: str, peer: int | None = None, root: int | None = None) -> str:
    """An operation with its other side, as `RankState.operation` holds it: 'recv from rank 3', 'reduce to rank 0'.

    A peer of -1 is a receive from any source: 'recv from any rank'.
    """
    plain = canonical(name)
    if peer == ANY:
        return f"{name} from any rank"
    other = peer if plain in POINT_TO_POINT else root
    if other is None:
        return name
    to = plain in ("send", "reduce", "gather")
    return f"{name} {'to' if to else 'from'} rank {other}"


def operation_words(operation: Operation) -> str:
    """`operation_text` of an `Operation`."""
    return operation_text(operation.name, operation.peer, operation.root)


def awaited(operation: str, missing: Sequence[int]) -> str:
    """An operation and whom it waits for: 'all_reduce for ranks 1 and 3'; nobody twice: 'recv from rank 3'."""
    if not missing:
        return operation
    says_whom = is_message(operation.split()[0]) and " rank" in operation
    ranks = named(missing)
    return operation if says_whom or operation.endswith(f" {ranks}") else f"{operation} for {ranks}"


def line_text(place: Place | None, with_file: bool = False) -> str | None:
    """'line 8', or 'line 8 of collectives.py' where more than one file is in play."""
    if place is None:
        return None
    return f"line {place.line} of {place.file.rpartition('/')[2]}" if with_file else f"line {place.line}"


def at_line(place: Place | None) -> str:
    """' (line 8)', or nothing where the line is not known: to follow a verb."""
    return f" ({line_text(place)})" if place else ""


def clause(state: RankState) -> str:
    """What a rank does, without its number: 'waits in recv from rank 3', 'paused before line 5'."""
    line = line_text(state.place)
    if state.phase == "paused":
        if state.held:
            return f"held before {line} by you" if line else "held by you"
        return f"paused before {line}" if line else "has not begun"
    if state.phase == "waiting":
        return f"waits in {_awaited(state)}"
    if state.phase == "running":
        began = f"runs since {duration(_elapsed(state))}" if state.since is not None else "runs"
        return f"{began}, last seen at {line}" if line else began
    if state.phase == "failed":
        where = f"failed at {line}" if line else "failed"
        return f"{where}: {_error(state)}" if state.error else where
    if state.phase == "stopped":
        signal = state.detail.removeprefix("stopped by ")
        return f"is stopped{f' ({signal})' if signal else ''}: continue it or reset the cluster"
    if state.phase == "dead":
        return f"died: {state.detail}" if state.detail else "died"
    return "finished"


def details(state: RankState) -> tuple[str, ...]:
    """What stands after the clause, set apart by dots: the line and length of a wait, the operation that is next."""
    if state.phase == "waiting":
        line = line_text(state.place)
        waited = duration(_elapsed(state)) if _elapsed(state) else None
        return tuple(text for text in (line, waited) if text)
    if state.phase == "paused" and state.operation:
        return (f"about to call {state.operation}",)
    return ()


def sentence(state: RankState) -> str:
    """One rank in one sentence: 'rank 0 waits in recv from rank 3 · line 8 · 1.9 s'."""
    return " · ".join((f"rank {state.rank} {clause(state)}", *details(state)))


def sentences(position: Position) -> str:
    """All ranks, a line each, then the verdict if there is one."""
    lines = [sentence(state) for state in position.states]
    return "\n".join([*lines, position.verdict] if position.verdict else lines)


def advice(position: Position, rank: int) -> str | None:
    """What would free a waiting rank, or whom a held rank keeps waiting; None when there is nothing to say."""
    state = position.states[rank]
    if state.phase == "waiting" and state.waiting_for:
        groups: dict[str, list[int]] = {}
        for other in state.waiting_for:
            groups.setdefault(_reason(position.states[other]), []).append(other)
        return ", ".join(f"{named(ranks)} {_plural(reason, ranks)}" for reason, ranks in groups.items())
    if state.phase == "paused":
        freed = [other.rank for other in position.states if other.phase == "waiting" and rank in other.waiting_for]
        if freed:
            return f"{'let it go' if state.held else 'step it'} to free {named(freed)}"
    return None


def _reason(state: RankState) -> str:
    line = line_text(state.place)
    if state.phase == "paused":
        how = "is held" if state.held else "is paused"
        return f"{how} before {line}" if line else how
    if state.phase == "waiting":
        return f"waits in {_awaited(state)}"
    return {"running": "still runs", "stopped": "is stopped", **ENDED}[state.phase]


def _plural(reason: str, ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return reason
    return reason.replace("is ", "are ", 1).replace("waits ", "wait ", 1).replace("still runs", "still run")


def _awaited(state: RankState) -> str:
    return awaited(state.operation or "an operation", state.waiting_for)


def _elapsed(state: RankState) -> int:
    if state.since is None or state.now is None:
        return 0
    return max(0, state.now - state.since)


def _error(state: RankState) -> str:
    assert state.error is not None
    message = state.error.message.strip().splitlines()
    return f"{state.error.kind}: {message[0]}" if message else state.error.kind
