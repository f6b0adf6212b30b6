"""The schedule in hand: what is chosen in it, what can be done with it, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from kit.plan.schedule import BACKWARD, INPUT, WEIGHT, Action, Row, Schedule, read

RowMaker = Callable[[int, int, int], Iterable[Action | str]]
YOURS = "yours"


class Place(NamedTuple):
    """Where an action stands: on which rank, and how many come before it there."""

    rank: int
    position: int


Moment = tuple[Schedule, Place | None]  # of the history


class Draft:
    """A schedule with a history. `chosen` is the action that the next motion is about; None: none is.

    Edits of one gesture, such as a drag, are one step of the history: each begins anew from what the gesture found.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._past: list[Moment] = []
        self._future: list[Moment] = []
        self._gesture: str | None = None
        self.schedule = schedule
        self.chosen: Place | None = None

    # ------------------------------------------------------------------------------------------ choosing

    def choose(self, rank: int, position: int) -> None:
        """ValueError for an action that is not there."""
        self.chosen = self._known(rank, position)

    def beside(self, steps: int) -> None:
        """Chooses the action so many places later on the same rank, as far as there are any."""
        rank, position = self.chosen or Place(0, -1)
        self._choose_near(rank, position + steps)

    def across(self, steps: int, at: Callable[[Place, int], int]) -> None:
        """Chooses an action so many ranks further down; at: of a place and a rank, the position that is opposite."""
        here = self.chosen or Place(0, 0)
        rank = min(max(here.rank + steps, 0), self.schedule.ranks - 1)
        self._choose_near(rank, at(here, rank))

    def _choose_near(self, rank: int, position: int) -> None:
        if row := self.schedule.rows[rank]:
            self.chosen = Place(rank, min(max(position, 0), len(row) - 1))

    # ------------------------------------------------------------------------------------------ changing

    def replaced(self, schedule: Schedule, gesture: str | None = None) -> None:
        """Another schedule in the place of this one."""
        if gesture is None or gesture != self._gesture:
            self._past.append((self.schedule, self.chosen))
        self._future.clear()
        self._gesture = gesture
        self.schedule = schedule
        if self.chosen is not None and not self._is_there(self.chosen):
            self.chosen = None

    def move(self, rank: int, position: int, to: int, gesture: str | None = None) -> None:
        """Puts an action to another place of its row, and chooses it.

        Within a gesture `position` is where the action stood when the gesture began. ValueError for an action or a
        place that is not there.
        """
        goes_on = gesture is not None and gesture == self._gesture
        found = self._past[-1][0] if goes_on else self.schedule
        self._known(rank, position, found)
        self._known(rank, to, found)
        if to != position or goes_on:
            self.replaced(replace(found.moved(rank, position, to), name=YOURS), gesture)
        self.chosen = Place(rank, to)

    def shift(self, steps: int) -> None:
        """Moves the chosen action so many places later, as far as its row goes."""
        rank, position = self._must_choose()
        last = len(self.schedule.rows[rank]) - 1
        self.move(rank, position, min(max(position + steps, 0), last))

    def part(self) -> None:
        """Parts the chosen B into I and the W that follows it."""
        rank, position = self._must_choose()
        stage, kind, micro_batch = self.schedule.rows[rank][position]
        if kind != BACKWARD:
            raise ValueError(f"only a B can be parted; chosen is {self.schedule.rows[rank][position]}")
        parts = Action(stage, INPUT, micro_batch), Action(stage, WEIGHT, micro_batch)
        row = self.schedule.rows[rank]
        self._with_row(rank, (*row[:position], *parts, *row[position + 1 :]))

    def join(self) -> None:
        """Puts the chosen I and its W, or W and its I, together to a B where the I stands."""
        rank, position = self._must_choose()
        row = self.schedule.rows[rank]
        stage, kind, micro_batch = row[position]
        first, second = (Action(stage, part, micro_batch) for part in (INPUT, WEIGHT))
        if kind not in (INPUT, WEIGHT) or first not in row or second not in row:
            raise ValueError(f"only an I and its W can be joined; chosen is {row[position]}")
        whole = Action(stage, BACKWARD, micro_batch)
        joined = tuple(whole if action == first else action for action in row if action != second)
        self._with_row(rank, joined)
        self.chosen = Place(rank, joined.index(whole))

    def edit(self, text: str) -> None:
        """Takes torch's text form. ValueError for a cell that is no action, with its row and column."""
        found = read(text, YOURS, self.schedule.stages)
        rows: list[Row] = [*found.rows, *[()] * (self.schedule.ranks - found.ranks)]
        if len(rows) > self.schedule.ranks:
            raise ValueError(f"there are {len(rows)} rows; write one for each of the {self.schedule.ranks} ranks")
        self.replaced(replace(self.schedule, name=YOURS, rows=tuple(rows), together=found.together), "text")

    def make(self, row_of: RowMaker) -> None:
        """Takes a row for each rank from `row_of(rank, ranks, micro_batches)`: actions, or their text such as '0F0'."""
        made = []
        for rank in range(self.schedule.ranks):
            row = row_of(rank, self.schedule.ranks, self.schedule.micro_batches)
            if row is None:
                raise ValueError(f"for rank {rank} there is no row: return a list of actions such as '0F0'")
            cells = row.replace(",", " ").split() if isinstance(row, str) else map(str, row)
            text = ",".join(cells)
            made.append(read(text, YOURS, self.schedule.stages).rows[0] if text else ())
        self.replaced(replace(self.schedule, name=YOURS, rows=tuple(made), together=frozenset()))

    # ------------------------------------------------------------------------------------------ the way back

    @property
    def can_undo(self) -> bool:
        return bool(self._past)

    @property
    def can_redo(self) -> bool:
        return bool(self._future)

    def undo(self) -> None:
        self._go(self._past, self._future, "there is nothing to undo")

    def redo(self) -> None:
        self._go(self._future, self._past, "there is nothing to redo")

    def end_gesture(self) -> None:
        """What comes next is a step of its own; a gesture that changed nothing leaves none."""
        if self._gesture is not None and self._past and self._past[-1][0].rows == self.schedule.rows:
            self.schedule = self._past.pop()[0]
        self._gesture = None

    # ------------------------------------------------------------------------------------------ inside

    def _go(self, there: list[Moment], here: list[Moment], no: str) -> None:
        if not there:
            raise ValueError(no)
        here.append((self.schedule, self.chosen))
        self.schedule, self.chosen = there.pop()
        self._gesture = None

    def _with_row(self, rank: int, row: Row) -> None:
        self.replaced(replace(self.schedule.with_row(rank, row), name=YOURS))

    def _must_choose(self) -> Place:
        if self.chosen is None:
            raise ValueError("no action is chosen: click one, or call choose(rank, position)")
        return self.chosen

    def _is_there(self, place: Place) -> bool:
        return place.rank < self.schedule.ranks and place.position < len(self.schedule.rows[place.rank])

    def _known(self, rank: int, position: int, schedule: Schedule | None = None) -> Place:
        rows = (schedule or self.schedule).rows
        if not 0 <= rank < len(rows):
            raise ValueError(f"there is no rank {rank}, only 0 to {len(rows) - 1}")
        if not 0 <= position < len(rows[rank]):
            raise ValueError(f"rank {rank} has {len(rows[rank])} actions: there is no place {position} in its row")
        return Place(rank, position)
