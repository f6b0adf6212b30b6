"""Saying, of a recorded run that takes its time, who runs and who waits; and giving it up when its limit has come."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kit.clusters.progress import Progress
from kit.trace.facts import RankState
from kit.trace.text import duration, listed

if TYPE_CHECKING:
    from collections.abc import Callable

AFTER = 3.0  # s until the first word, and from one to the next
ANSWERS = 2.0  # s to say where they are, more than the coordinator gives the ranks, before a run ends without


class Patience:
    """Of one run. look: asks where the ranks are; `told` is called with the answer. limit: s; None: there is none."""

    def __init__(self, look: Callable[[], object], limit: float | None) -> None:
        self.sentence: str | None = None  # why the run was given up
        self.states: tuple[RankState, ...] = ()  # as the ranks last said
        self._look = look
        self._limit = limit
        self._began = time.monotonic()
        self._next = AFTER
        self._last_look = False
        self._progress = Progress()
        self._said = ""

    def spend(self) -> None:
        """To be called now and then while the run goes on."""
        spent = time.monotonic() - self._began
        if self._limit is not None and spent >= self._limit:
            if not self._last_look:
                self._last_look = True
                self._look()
            elif spent >= self._limit + ANSWERS:
                self._give_up()
        elif spent >= self._next:
            self._next = spent + AFTER
            self._look()

    def told(self, states: tuple[RankState, ...]) -> None:
        self.states = states
        if self._last_look:
            self._give_up()
        else:
            self._said = in_one_line(states)
            self._progress.say(self._said)

    def over(self, well: bool) -> None:
        """The run has ended; what was said last stays where it did not end well."""
        if self._said:
            self._progress.done(f"the run took {self._progress.seconds():.1f} s" if well else self._said)

    def _give_up(self) -> None:
        assert self._limit is not None
        where = in_one_line(self.states)
        self.sentence = f"The run was given up after {self._limit:g} s{': ' if where else ''}{where}."


def in_one_line(states: Sequence[RankState]) -> str:
    """'rank 1 has been running for 6.0 s, last seen at line 79; ranks 0, 2, 3 wait in all_reduce for rank 1 (line 80),
    5.9 s so far'.
    """
    alike: dict[tuple[object, ...], list[RankState]] = {}
    for state in states:
        kind = (state.operation, state.waiting_for) if state.phase == "waiting" else (state.detail,)
        alike.setdefault((state.phase, state.place, *kind), []).append(state)
    return "; ".join(map(_clause, alike.values()))


def _clause(alike: Sequence[RankState]) -> str:
    first = max(alike, key=lambda state: state.elapsed)
    who, verb = listed(state.rank for state in alike), "" if len(alike) > 1 else "s"
    spent = duration(first.elapsed) if first.elapsed else ""
    if first.phase == "running":
        where = f", last seen at {first.place.words()}" if first.place else ""
        runs = f"{'have' if len(alike) > 1 else 'has'} been running for {spent}" if spent else f"run{verb}"
        return f"{who} {runs}{where}{f' ({first.detail})' if first.detail else ''}"
    if first.phase == "waiting":
        line = f" ({first.place.words()})" if first.place else ""
        return f"{who} wait{verb} in {first.awaited}{line}{f', {spent} so far' if spent else ''}"
    return f"{who} {first.clause if len(alike) == 1 else first.phase}"
