"""The stepping panel: where is every rank, what does each hold, what moves, what is late, and why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from kit.panels.areas import Areas, header_area, header_area_html, header_html
from kit.panels.embed import Prediction
from kit.panels.motions import Motions
from kit.panels.one_at_a_time import Motion, OneAtATime, running_loop
from kit.panels.panel import Panel, about_html, about_rows
from kit.panels.still import after_cells
from kit.panels.transport import Transport
from kit.plot.words import words_text
from kit.run.cursor import Steppable

if TYPE_CHECKING:
    from kit.panels.areas import Moment
    from kit.run.cursor import TraceCursor
    from kit.trace.facts import Position
    from kit.trace.trace import Trace

PLAY_EVERY = 0.4  # seconds between two steps of Play


class SteppingPanel(Panel):
    """A session, live or replayed, as buttons and pictures. Every control is one method, and `text()` reads it all.

    Called from a cell or a script the methods return when the motion has; pressed in the browser they run beside the
    notebook's loop, one at a time, and the panel says 'running' meanwhile. `predicted`, a trace or a function that
    re-times one, is drawn above the measured times; `moment` draws a topic's own picture of a position of the trace.
    """

    def __init__(
        self,
        session: TraceCursor,
        predicted: Trace | Callable[[Trace], Trace] | None = None,
        moment: Moment | None = None,
    ) -> None:
        self.session = session
        self.motions = Motions(session)
        self._predicted = Prediction(predicted)
        self._under_way = OneAtATime(self.paint, self._failed)
        self._playing: asyncio.Task[None] | None = None
        self._notice = ""
        self._painted: tuple[Trace, int] | None = None
        world = session.trace.meta.world
        self._transport = Transport(world, self._pressed, self._slid, self._switched)
        self._header = header_area("")
        self.areas = Areas(self._predicted, self._chosen, moment)
        self._about = session.about
        parts = [self._header, *about_rows(self._about), *self._transport.rows(), *self.areas.rows()]
        super().__init__(f"Stepping {session.trace.meta.function}", parts, self.areas.heard, self._transport.styles)
        self.paint()
        self._follow()

    # ------------------------------------------------------------------------------------------ controls

    def step(self) -> Position:
        """The next line on every rank that is not held; in the record, one position forward."""
        return self._now(self.motions.step)

    def over(self) -> Position:
        """The next line of this function, calls on the way included."""
        return self._now(self.motions.over)

    def into(self) -> Position:
        """Into the function called on this line."""
        return self._now(self.motions.into)

    def out(self) -> Position:
        """Out of this function, to its caller."""
        return self._now(self.motions.out)

    def next_collective(self) -> Position:
        """To right before the next operation."""
        return self._now(self.motions.collective)

    def finish(self) -> Position:
        """To the end of the function on every rank that is not held."""
        return self._now(self.motions.finish)

    def back(self) -> Position:
        """One position back in the record; the ranks stay where they are."""
        return self._now(self.motions.back)

    def start(self) -> Position:
        """To the first position of the record."""
        return self._now(self.motions.start)

    def end(self) -> Position:
        """To the newest position of the record."""
        return self._now(self.motions.end)

    def seek(self, index: int) -> Position:
        """To a position of the record. Raises ValueError when it has none of that number."""
        return self._now(lambda: self.motions.seek(index))

    def reset(self) -> Position:
        """Fresh ranks before the first line, with the original arguments; nobody is held any more."""
        self.pause()
        return self._now(self.motions.reset)

    def hold(self, *ranks: int) -> None:
        """Leaves ranks out of the motions that follow. Raises ValueError for a rank that does not exist."""
        self.motions.held |= self._known(ranks)
        self.paint()

    def release(self, *ranks: int) -> None:
        """Lets ranks go again; without arguments, all of them."""
        self.motions.held -= self._known(ranks) or set(self.motions.held)
        self.paint()

    def select(self, name: str | None) -> None:
        """Shows this variable of every rank; None lets the panel choose."""
        self.areas.select(name)
        self.paint()

    def show(self, what: str) -> None:
        """'messages': what moves now; 'flow': the operation's shape as a flow chart."""
        self.areas.show(what)
        self.paint()

    def play(self) -> None:
        """Steps until nothing moves or a rank needs a person; in a notebook in the background, in a script at once."""
        if self._playing is not None:
            return
        loop = running_loop()
        if loop is None:
            before = -1
            while self._goes_on(before):
                before = self.session.position
                self.step()
            return
        self._playing = loop.create_task(self._play())
        self.paint()

    def pause(self) -> None:
        """Ends Play after the step under way."""
        if self._playing is not None:
            self._playing.cancel()
            self._playing = None
            self.paint()

    # ------------------------------------------------------------------------------------------ reading

    @property
    def held(self) -> frozenset[int]:
        return frozenset(self.motions.held)

    @property
    def status(self) -> str:
        """'running', 'live', 'finished', 'replay', or why the ranks cannot be moved any more."""
        if self._under_way.busy:
            return "running"
        if not self.motions.at_newest:
            return "replay"
        if self.motions.settled:
            return "finished"
        return "live" if self.session.live else self.session.ended or "replay"

    def text(self) -> str:
        """All that the panel says, as plain text: its header, a sentence per rank, the verdict, the notice."""
        words = words_text(self.session.trace, self.session.position)
        head = " · ".join((self.session.trace.meta.function, *self._where()))
        return "\n".join(part for part in (head, self._about, words, self._notice) if part)

    def inside(self) -> tuple[str, int]:
        trace = self.session.trace
        page, height = self.areas.inside(trace, self.session.position, self.held)
        return header_area_html(header_html(trace, self._where())) + about_html(self._about) + page, height

    # ------------------------------------------------------------------------------------------ inside

    def paint(self) -> None:
        """Shows where the session stands. Only what has changed is sent to the page."""
        position, trace = self.session.position, self.session.trace
        motions = self.motions
        self._transport.paint(position, motions.newest, motions.can_move, motions.held, self._playing is not None)
        self._transport.say(self._notice or self._hint())
        self._set_class("lsp-running", self._under_way.busy)
        self.areas.paint(trace, position, motions.held)
        self._header.value = header_html(trace, self._where())  # last: who sees the new number sees it all
        self._painted = trace, position
        self._still.stale()

    def catch_up(self) -> None:
        """Paints if the session has been moved past this panel, by a cell for instance."""
        trace, position = self._painted or (None, None)
        if trace is not self.session.trace or position != self.session.position:
            self.paint()

    def _follow(self) -> None:
        """Repaints when the record grows by itself, and after a cell that moved the session without the panel."""
        loop = running_loop()
        if loop is not None:
            self.session.on_change(lambda: loop.call_soon_threadsafe(self.paint))
        after_cells(self, "catch_up")

    def _hint(self) -> str:
        """What to do when the ranks went away under this session, and what holding does where there are none."""
        if self._about and self.motions.held:
            return "A recording: nobody is held back"
        lost = self.session.ended is not None and isinstance(self.session, Steppable) and not self._about
        return "Reset puts ranks at the first line" if lost and not self.motions.settled else ""

    def _where(self) -> tuple[str, str, str]:
        return f"stop {self.session.position}", f"recorded {self.motions.newest}", self.status

    def _set_class(self, name: str, on: bool) -> None:
        if on:
            self.add_class(name)
        else:
            self.remove_class(name)

    def _now(self, motion: Motion) -> Position:
        self._notice = ""
        self._under_way.now(motion)
        return self.session.state

    def _pressed(self, name: str) -> None:
        self._notice = ""
        if name == "play":
            (self.play if self._playing is None else self.pause)()
            return
        self.pause()
        self._under_way.soon(getattr(self.motions, name))  # a control has the name of its motion

    def _slid(self, index: int) -> None:
        self._under_way.soon(lambda: self.motions.seek(index))

    def _switched(self, rank: int, on: bool) -> None:
        (self.hold if on else self.release)(rank)

    def _chosen(self, name: str | None) -> None:
        self.select(name)

    def _failed(self, error: Exception) -> None:
        self._notice = str(error)
        self._transport.say(self._notice)

    def _known(self, ranks: tuple[int, ...]) -> set[int]:
        world = self.session.trace.meta.world
        if strangers := [rank for rank in ranks if rank not in range(world)]:
            raise ValueError(f"there is no rank {strangers[0]}: this session has ranks 0 to {world - 1}")
        return set(ranks)

    def _goes_on(self, before: int) -> bool:
        """Whether a step from `before` moved anything and another one makes sense."""
        return self.session.position != before and self.motions.can_move and self.session.state.verdict is None

    async def _play(self) -> None:
        try:
            while True:
                before = self.session.position
                self._under_way.soon(self.motions.step)
                await self._under_way.settle()
                if self._notice or not self._goes_on(before):
                    break
                await asyncio.sleep(PLAY_EVERY)
        finally:
            self._playing = None
            self.paint()
