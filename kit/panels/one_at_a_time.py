"""One motion at a time: beside the notebook's loop when there is one, at once when there is none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

Motion = Callable[[], object]
PATIENCE = 0.25  # seconds before a motion under way is worth saying 'running'


class OneAtATime:
    """Runs motions that may block for seconds, and calls `changed` when a panel should paint.

    That is after each motion, and once in the middle of a long one: on the event loop for `soon`, in the calling thread
    for `now`. `failed` takes what a motion raised under `soon`; `now` raises it.
    """

    def __init__(self, changed: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        self._changed = changed
        self._failed = failed
        self._one_at_a_time = threading.Lock()
        self._waiting: Motion | None = None  # pressed while another ran: the last press counts
        self._task: asyncio.Task[None] | None = None
        self._long = False

    @property
    def busy(self) -> bool:
        """Whether a motion has been under way long enough to be worth a word."""
        return self._long

    def now(self, motion: Motion) -> None:
        """Runs a motion to its end in this thread, after the one under way, and paints."""
        try:
            self._guarded(motion)
        finally:
            self._changed()

    def soon(self, motion: Motion) -> None:
        """Runs a motion without holding the loop up. Presses while one runs are folded into the last of them."""
        loop = running_loop()
        if loop is None:
            try:
                self.now(motion)
            except Exception as error:
                self._failed(error)
            return
        if self._task is not None:
            self._waiting = motion
            return
        self._task = loop.create_task(self._run(motion))

    async def settle(self) -> None:
        """Returns when nothing is under way."""
        while self._task is not None:
            await asyncio.shield(self._task)

    async def _run(self, motion: Motion) -> None:
        following: Motion | None = motion
        try:
            while following is not None:
                await self._once(following)
                following, self._waiting = self._waiting, None
                if following is not None:
                    self._changed()
        finally:
            self._task = None
            self._changed()

    async def _once(self, motion: Motion) -> None:
        soon = asyncio.get_running_loop().call_later(PATIENCE, self._say_long)
        try:
            await asyncio.to_thread(self._guarded, motion)
        except Exception as error:  # shown in the panel: a press of a button has no caller to raise to
            self._failed(error)
        finally:
            soon.cancel()
            self._long = False

    def _say_long(self) -> None:
        self._long = True
        self._changed()

    def _guarded(self, motion: Motion) -> None:
        with self._one_at_a_time:
            motion()


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop of this thread when it runs; None in a script."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
