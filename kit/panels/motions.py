"""What each control does: at the newest position it moves live ranks, anywhere else it walks through the record.

No widgets here: a session goes in, the session has moved when a method returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.run.cursor import Steppable
from kit.trace.facts import ENDED

if TYPE_CHECKING:
    from kit.run.cursor import TraceCursor


class Motions:
    """The motions of one panel, with the ranks its reader holds back.

    `held` are left out of every live motion. Raises ValueError when all ranks are held and a live motion is asked for.
    """

    def __init__(self, session: TraceCursor) -> None:
        self.session = session
        self.held: set[int] = set()

    @property
    def newest(self) -> int:
        """Index of the newest position; -1 before there is one."""
        return len(self.session.trace.positions) - 1

    @property
    def at_newest(self) -> bool:
        return self.session.position >= self.newest

    @property
    def can_move(self) -> bool:
        """Whether going forward does anything: there is record ahead, or there are ranks that can still move."""
        return not self.at_newest or (self.session.live and not self.settled)

    @property
    def settled(self) -> bool:
        """Whether no rank can go on: each has finished, failed or died."""
        return self.newest >= 0 and all(state.phase in ENDED for state in self.session.state)

    def start(self) -> None:
        self.session.seek(0)

    def end(self) -> None:
        self.session.seek(max(0, self.newest))

    def back(self) -> None:
        if self.session.position > 0:
            self.session.back()

    def seek(self, index: int) -> None:
        """Goes to a position of the record. Raises ValueError when the record has no such position."""
        if not 0 <= index <= self.newest:
            raise ValueError(f"position {index} is not in the record: it holds positions 0 to {self.newest}")
        self.session.seek(index)

    def step(self) -> None:
        self._forward("step")

    def over(self) -> None:
        self._forward("over")

    def into(self) -> None:
        self._forward("into")

    def out(self) -> None:
        self._forward("out")

    def collective(self) -> None:
        """To right before the next operation; in the record, to the next position that stands before one."""
        if self.at_newest:
            self._live("to_collective")
        else:
            self.session.seek(self._next_operation())

    def finish(self) -> None:
        """To the end: through what is left of the record, then, where ranks are live, to the end of the function."""
        self.end()
        self._live("finish")

    def reset(self) -> None:
        """Fresh ranks before the first line, with the original arguments. A replayed record goes back to its start."""
        self.held.clear()
        if isinstance(self.session, Steppable):
            self.session.reset()
        else:
            self.start()

    def _forward(self, motion: str) -> None:
        if self.at_newest:
            self._live(motion)
        else:
            self.session.forward()

    def _live(self, motion: str) -> None:
        if not self.session.live or self.settled:
            return
        world = self.session.trace.meta.world
        free = [rank for rank in range(world) if rank not in self.held]
        if not free:
            raise ValueError("every rank is held: let one go, then move on")
        getattr(self.session, motion)(ranks=free if self.held else None)

    def _next_operation(self) -> int:
        """The next position from which some rank issues an operation, however the record was made."""
        positions = self.session.trace.positions
        for index in range(self.session.position + 1, self.newest):
            here, after = positions[index].states, positions[index + 1].states
            if any(later.operations > now.operations for now, later in zip(here, after, strict=True)):
                return index
        return self.newest
