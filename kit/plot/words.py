"""What every rank does, in words: the same facts as the pictures beside them, said by `kit.trace.text`."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from kit.plot.markup import chip, escape
from kit.plot.moment import position_at

if TYPE_CHECKING:
    from kit.trace.facts import Position, RankState
    from kit.trace.trace import Trace

_TROUBLE = ("waiting", "failed", "dead", "stopped")


def words_html(trace: Trace, position: int, held: Collection[int] = ()) -> str:
    """A line per rank (chip, sentence, quiet detail) and room for the verdict below; always as many lines.

    A text longer than its line is whole in its tooltip. `held`: ranks the person holds back, drawn square.
    """
    moment = position_at(trace, position)
    lines = [_line(moment, state, held, last_print(trace, state)) for state in moment.states]
    verdict = escape(moment.verdict or "")
    lines.append(f'<div class="ls-word ls-verdict" role="status" title="{verdict}">{verdict}</div>')
    many = " ls-many" if len(lines) > 9 else ""  # more than eight ranks stand in two columns
    return f'<div class="ls ls-words{many}" role="group" aria-label="what every rank does">{"".join(lines)}</div>'


def words_text(trace: Trace, position: int) -> str:
    """The same as plain text, a line per rank and the verdict."""
    moment = position_at(trace, position)
    lines = [
        f"rank {state.rank} " + " · ".join((state.clause, *_quiet(moment, state, last_print(trace, state))))
        for state in moment.states
    ]
    return "\n".join([*lines, moment.verdict] if moment.verdict else lines)


def last_print(trace: Trace, state: RankState) -> str:
    """The last line that a stepped rank had printed by then; '' when it had printed nothing."""
    for stop in reversed(trace.ranks[state.rank].stops[: state.stop + 1]):
        printed = "".join(output.text for output in stop.output if output.stream == "stdout").split("\n")
        if filled := [line.strip() for line in printed if line.strip()]:
            return filled[-1]
    return ""


def _line(moment: Position, state: RankState, held: Collection[int], printed: str) -> str:
    head, quiet = state.clause, " · ".join(_quiet(moment, state, printed))
    mood = ' class="ls-bad"' if state.phase in _TROUBLE else ""
    whole = escape(" · ".join(part for part in (f"rank {state.rank} {head}", quiet) if part))
    return (
        f'<div class="ls-word" title="{whole}">{chip(state.rank, state, state.rank in held)}'
        f"<span{mood}>{escape(head)}</span><em>{escape(quiet)}</em></div>"
    )


def _quiet(moment: Position, state: RankState, printed: str) -> tuple[str, ...]:
    said = f"printed: {printed}" if printed else ""
    return tuple(part for part in (*state.details, moment.advice(state.rank), said) if part)
