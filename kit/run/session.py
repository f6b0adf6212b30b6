"""A session: a function that stands on all ranks, is moved line by line, and leaves a record."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit.probe import shipping
from kit.protocol.messages import (
    AllReady,
    AtStop,
    Changed,
    ControllerLost,
    HostLost,
    How,
    Move,
    Settled,
    ToKernel,
    Unloaded,
)
from kit.run.call import Call, describe
from kit.run.cursor import PATIENCE, Steppable
from kit.run.errors import NotFinished, what_went_wrong
from kit.run.recorder import Recorder
from kit.run.results import opened
from kit.run.scheduler import Replaced
from kit.run.targets import line_to_stop_at
from kit.trace.facts import ENDED, Position, RankState
from kit.trace.trace import Trace

if TYPE_CHECKING:
    from kit.protocol.parcels import Parcel
    from kit.run.scheduler import RunScheduler
    from kit.run.slow_links import SlowLinks

SLACK = 2.0  # s beyond it that the host agent has to say so


class Session(Steppable):
    """A function stepped on live ranks."""

    def __init__(self, scheduler: RunScheduler, call: Call, link: SlowLinks | None = None) -> None:
        self._scheduler, self._cluster = scheduler, scheduler.cluster
        self._call = call
        self._link = link.of(scheduler) if link else nullcontext()
        self._package = shipping.pack(*call, scheduler.size)
        self._moving = threading.Lock()
        self._news = threading.Condition()
        self._motions = itertools.count()
        self._listeners: list[Callable[[], object]] = []
        self._before_reset: list[Callable[[], None]] = []
        self._ended: str | None = None
        self._run = -1
        self._begin()

    # -- motions -------------------------------------------------------------------------------------------------

    def to_line(
        self, line: int, file: str | None = None, ranks: Sequence[int] | None = None, timeout: float = PATIENCE
    ) -> Position:
        name = self._file_named(file)
        source = self.trace.source(name or self._package.root_file)
        target = line_to_stop_at(line, source.lines, source.label) if source is not None else line
        return self._move("to_line", ranks, timeout, line=target, file=name)

    def reset(self) -> Position:
        """Forks all ranks anew and stands before the first line again, with the original arguments and an empty
        record.
        """
        for listener in tuple(self._before_reset):
            listener()
        with self._news:  # a motion under way need not be waited for
            self._ended = self._ended or _WHY_ENDED[AllReady]
            self._news.notify_all()
        with self._moving:
            self._cluster.reset()
            self._begin()
        self._tell_listeners()
        return self.state

    def close(self) -> None:
        with self._news:
            over, self._ended = self.ended is not None, self.ended or "the session was closed"
        if not over:
            self._scheduler.end(self._run, "the session was closed")

    # -- what is known -------------------------------------------------------------------------------------------

    @property
    def trace(self) -> Trace:
        with self._news:
            return self._recorder.trace()

    @property
    def ended(self) -> str | None:
        return self._ended or (None if self._cluster.running else "the cluster was stopped")

    @property
    def live(self) -> bool:
        newest = self._recorder.positions[-1]
        at_newest = self._position == len(self._recorder.positions) - 1
        return self.ended is None and at_newest and any(s.phase not in ENDED for s in newest.states)

    @property
    def results(self) -> list[Any]:
        if len(self._results) < self._recorder.world:
            newest = self._recorder.positions[-1]
            raise NotFinished(
                f"not every rank has finished:\n{newest}\nfinish() moves them to the end, reset() starts over."
            )
        return opened(self._results)

    def export(self, path: str | Path) -> Path:
        from kit.run.export import write

        return write(path, *self._call, world=self._recorder.world)

    def on_change(self, listener: Callable[[], object]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def before_reset(self, listener: Callable[[], None]) -> None:
        self._before_reset.append(listener)

    # -- inside --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        with self._link:
            self._start()

    def _start(self) -> None:
        world, throttle = self._cluster.size, self._scheduler.throttle
        meta = describe(self._cluster, self._package, self._call, world, throttle)
        recorder = Recorder(self._package, "step", meta)
        with self._news:
            self._recorder, self._ended = recorder, None
            self._results: dict[int, Parcel] = {}
            self._settled: dict[int, Settled] = {}
            self._abandoned: set[int] = set()  # motions whose caller was interrupted
        self._position = -1
        motion = next(self._motions)
        self._run = -1
        patience = int((PATIENCE + SLACK) * 1e9)  # the first start imports what the function needs
        hear = partial(self._hear, recorder)
        with self._abandoning(motion):
            self._run = self._scheduler.begin(
                self._package, "step", recorder.world, hear, motion=motion, patience=patience
            )
            self._await(motion, "start", (), PATIENCE + SLACK)

    def _move(
        self, how: How, ranks: Sequence[int] | None, timeout: float, line: int = 0, file: str | None = None
    ) -> Position:
        moved = self._checked(ranks)
        with self._moving:
            newest = self._recorder.positions[-1]
            self._position = len(self._recorder.positions) - 1
            if all(s.phase in ENDED for s in newest.states):
                return newest
            if self.ended is not None:
                raise RuntimeError(
                    f"{self.ended}: the record can be looked at, and reset() stands before the first line again"
                )
            motion = next(self._motions)
            held = tuple(r for r in range(self._recorder.world) if r not in moved)
            words = f"to_line {line}" if how == "to_line" else how
            with self._abandoning(motion):
                self._scheduler.send(Move(self._run, motion, moved, how, int(timeout * 1e9), line, file))
                return self._await(motion, words, held, timeout)

    @contextmanager
    def _abandoning(self, motion: int) -> Iterator[None]:
        """A motion whose caller is interrupted, at whatever moment, goes on: that it came to rest is recorded then."""
        try:
            yield
        except KeyboardInterrupt:
            with self._news:
                self._abandoned.add(motion)
                settled = self._settled.pop(motion, None)
            if settled is not None:
                self._hear(self._recorder, settled)
            raise

    def _await(self, motion: int, words: str, held: tuple[int, ...], timeout: float) -> Position:
        deadline = time.monotonic() + timeout + SLACK
        with self._news:
            while motion not in self._settled and self._ended is None:
                if not self._news.wait(deadline - time.monotonic()):
                    self._ended = "the host agent does not answer"
            message = self._settled.pop(motion, None)
            if message is None:
                position = self._last_known(words)
            else:
                states = tuple(_held(s) if s.rank in held else s for s in message.states)
                position = Position(words, states, message.verdict)
                if self._recorder.positions and _nothing_new(position, newest := self._recorder.positions[-1]):
                    self._position = len(self._recorder.positions) - 1
                    return newest
            self._position = self._recorder.add(position)
            return position

    def _hear(self, recorder: Recorder, message: ToKernel | Replaced) -> None:
        """In the connection's thread. What comes late from before a reset, for its recorder, is not heard."""
        if isinstance(message, Settled) and message.motion in self._abandoned:
            message = Changed(message.run, "came to rest", message.states, message.verdict)
        with self._news:
            if recorder is not self._recorder:
                return
            match message:
                case HostLost() | ControllerLost() | AllReady() | Replaced():
                    if self._ended is None:
                        self._ended = _WHY_ENDED[type(message)]
                        if isinstance(message, HostLost) and self._recorder.positions:
                            self._note_loss(self._ended)
                case _ if getattr(message, "run", self._run) != self._run and self._run != -1:
                    return
                case Settled():
                    self._settled[message.motion] = message
                case Changed():
                    at_newest = self._position == len(self._recorder.positions) - 1
                    index = self._recorder.add(Position(message.what, message.states, message.verdict))
                    self._position = index if at_newest else self._position
                case Unloaded():
                    self._ended = message.error.message
                case AtStop():
                    self._recorder.hear(message)
                    if message.result is not None:
                        self._results[message.rank] = message.result
                    if message.stop.truncated:
                        self._recorder.note("the capture budget was spent: later stops show lines without tensors")
                case _:
                    self._recorder.hear(message)
            self._news.notify_all()
        if isinstance(message, Changed | HostLost | ControllerLost | AllReady | Replaced):
            self._tell_listeners()

    def _note_loss(self, why: str) -> None:
        newest = self._recorder.positions[-1]
        dead = tuple(s if s.phase in ENDED else replace(s, phase="dead", detail=why) for s in newest.states)
        self._recorder.add(Position("agent lost", dead, why))

    def _tell_listeners(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    def _last_known(self, words: str) -> Position:
        if self._recorder.positions:
            return replace(self._recorder.positions[-1], motion=words, verdict=self._ended)
        return Position(words, tuple(RankState(r, "failed") for r in range(self._recorder.world)), self._ended)

    def _checked(self, ranks: Sequence[int] | None) -> tuple[int, ...]:
        world = self._recorder.world
        if ranks is None:
            return tuple(range(world))
        chosen = {ranks} if isinstance(ranks, int) else set(ranks)
        wrong = [r for r in chosen if not isinstance(r, int) or not 0 <= r < world]
        if wrong:
            raise ValueError(
                f"there is no rank {wrong[0]!r}: the ranks are 0 to {world - 1}, for instance ranks=[0, {world - 1}]"
            )
        return tuple(sorted(chosen))

    def _file_named(self, file: str | None) -> str | None:
        if file is None:
            return None
        for source in self.trace.sources:
            if file in (source.file, source.label) or source.label.endswith("/" + file):
                return source.file
        known = ", ".join(repr(s.label) for s in self.trace.sources)
        raise ValueError(f"no stepped file is called {file!r}: there are {known}")

    def __repr__(self) -> str:
        return (
            f"Session of {self._package.name}: position {self._position}\n{what_went_wrong(self.state) or self.state}"
        )


_WHY_ENDED: dict[type, str] = {
    HostLost: "the cluster's host agent ended",
    ControllerLost: "the cluster's controller ended",
    AllReady: "the ranks were reset",
    Replaced: "another function was given to the ranks",
}


def _nothing_new(position: Position, newest: Position) -> bool:
    """Whether a motion moved nobody: all wait as they did. Of a rank that runs, that it still runs is news."""

    def told(one: Position) -> tuple[str | None, list[RankState]]:
        return one.verdict, [s if s.phase == "running" else replace(s, now=None) for s in one.states]

    return told(position) == told(newest)


def _held(state: RankState) -> RankState:
    return replace(state, held=True) if state.phase == "paused" else state
