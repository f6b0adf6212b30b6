"""A session: a function that stands on all ranks, is moved line by line, and leaves a record."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit.probe import shipping
from kit.probe.shipping import Package
from kit.probe.wire import Message
from kit.session.conductor import conductor_of
from kit.session.errors import NotFinished, what_went_wrong
from kit.session.meta import describe
from kit.session.reading import Reading
from kit.session.recorder import Recorder
from kit.session.targets import line_to_stop_at
from kit.trace.facts import Position, RankState, Trace

if TYPE_CHECKING:
    from kit.cluster import Cluster

PATIENCE = 3.0  # s that a motion waits for ranks that run
SLACK = 2.0  # s beyond it that the host agent has to say so
ENDED = ("finished", "failed", "dead")


class Session(Reading):
    """Made by `kit.step(fn, *args, **kwargs)`; stands before the function's first line.

    Motions (`step`, `over`, `into`, `out`, `to_collective`, `to_line`, `finish`) move ranks and return the Position
    they came to, after at most `timeout` seconds; `ranks=[0, 2]` moves only some. `back`, `forward` and `seek` move
    through the record and touch no rank.
    """

    def __init__(
        self, cluster: Cluster, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._cluster = cluster
        self._call = (function, args, kwargs)
        self._package = shipping.pack(function, args, kwargs, cluster.size)
        self._moving = threading.Lock()
        self._news = threading.Condition()
        self._motions = itertools.count()
        self._listeners: list[Callable[[], None]] = []
        self._ended: str | None = None
        self._run = -1
        self._begin()

    # -- motions -------------------------------------------------------------------------------------------------

    def step(self, ranks: Sequence[int] | None = None, timeout: float = PATIENCE) -> Position:
        """The next line of the learner's own code, or of the file the function lives in."""
        return self._move("step", ranks, timeout)

    def over(self, ranks: Sequence[int] | None = None, timeout: float = PATIENCE) -> Position:
        """The next line of the function in view, or of its callers; calls are passed over."""
        return self._move("over", ranks, timeout)

    def into(self, ranks: Sequence[int] | None = None, timeout: float = PATIENCE) -> Position:
        """The next line anywhere that can be stepped: inside a called function, if the line calls one."""
        return self._move("into", ranks, timeout)

    def out(self, ranks: Sequence[int] | None = None, timeout: float = PATIENCE) -> Position:
        """Until the function in view has returned to its caller."""
        return self._move("out", ranks, timeout)

    def to_collective(self, ranks: Sequence[int] | None = None, timeout: float = PATIENCE) -> Position:
        """Until the next operation (a collective, a send or a receive) is about to be issued."""
        return self._move("to_collective", ranks, timeout)

    def to_line(
        self, line: int, file: str | None = None, ranks: Sequence[int] | None = None, timeout: float = PATIENCE
    ) -> Position:
        """Until a line, numbered as the source view shows it, or the next one with code; `file` as a Source's file or
        label, by default the function's.
        """
        name = self._file_named(file)
        source = self.trace.source(name or self._package.root_file)
        target = line_to_stop_at(line, source.lines, source.label) if source is not None else line
        return self._move("to_line", ranks, timeout, line=target, file=name)

    def finish(self, ranks: Sequence[int] | None = None, timeout: float = PATIENCE) -> Position:
        """To the end."""
        return self._move("finish", ranks, timeout)

    def reset(self) -> Position:
        """Forks all ranks anew and stands before the first line again, with the original arguments and an empty
        record.
        """
        with self._news:  # a motion under way need not be waited for
            self._ended = self._ended or _WHY_ENDED["reset-done"]
            self._news.notify_all()
        with self._moving:
            self._cluster.reset()
            self._begin()
        self._tell_listeners()
        return self.state

    def close(self) -> None:
        """Lets the ranks leave the function. The record stays."""
        with self._news:
            over, self._ended = self.ended is not None, self.ended or "the session was closed"
        if not over:
            self._conductor.end(self._run, "the session was closed")

    # -- what is known -------------------------------------------------------------------------------------------

    @property
    def trace(self) -> Trace:
        with self._news:
            return self._recorder.trace()

    @property
    def ended(self) -> str | None:
        """Why the ranks cannot be moved any more; None while they can."""
        return self._ended or (None if self._cluster.running else "the cluster was stopped")

    @property
    def live(self) -> bool:
        """Whether the position in view is the newest and a rank can still be moved."""
        newest = self._recorder.positions[-1]
        at_newest = self._position == len(self._recorder.positions) - 1
        return self.ended is None and at_newest and any(s.phase not in ENDED for s in newest.states)

    @property
    def results(self) -> list[Any]:
        """What the function returned, by rank. NotFinished, with the sentences, while a rank has not."""
        if len(self._results) < self._recorder.world:
            newest = self._recorder.positions[-1]
            raise NotFinished(
                f"not every rank has finished:\n{newest}\nfinish() moves them to the end, reset() starts over."
            )
        return [shipping.unpack(self._results[rank]) for rank in sorted(self._results)]

    def export(self, path: str | Path) -> Path:
        """Writes a plain script, without kit, that torchrun or mpiexec starts with the same function and arguments."""
        from kit.session.export import write

        return write(path, *self._call, world=self._recorder.world)

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls `listener()` (from another thread) when the record grew without a motion of the caller; returns its
        end.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    # -- inside --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._conductor = conductor_of(self._cluster)
        meta = describe(self._cluster, self._package, self._call, self._cluster.size)
        recorder = Recorder(self._package, "step", meta)
        with self._news:
            self._recorder, self._ended = recorder, None
            self._results: dict[int, bytes] = {}
            self._settled: dict[int, Message] = {}
            self._abandoned: set[int] = set()  # motions whose caller was interrupted
        self._position = -1
        motion = next(self._motions)
        self._run = -1
        # the first start imports what the function needs
        order = {"motion": motion, "patience": int((PATIENCE + SLACK) * 1e9)}
        hear = partial(self._hear, recorder)
        self._run = self._conductor.begin(self._package, "step", recorder.world, hear, **order)
        self._await(motion, "start", (), PATIENCE + SLACK)

    def _move(self, how: str, ranks: Sequence[int] | None, timeout: float, **where: Any) -> Position:
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
            order = {"kind": "move", "run": self._run, "motion": motion, "how": how, "ranks": moved, **where}
            self._conductor.send({**order, "patience": int(timeout * 1e9)})
            held = tuple(r for r in range(self._recorder.world) if r not in moved)
            words = f"to_line {where['line']}" if how == "to_line" else how
            return self._await(motion, words, held, timeout)

    def _await(self, motion: int, words: str, held: tuple[int, ...], timeout: float) -> Position:
        deadline = time.monotonic() + timeout + SLACK
        with self._news:
            try:
                while motion not in self._settled and self._ended is None:
                    if not self._news.wait(deadline - time.monotonic()):
                        self._ended = "the host agent does not answer"
            except KeyboardInterrupt:
                self._abandoned.add(motion)
                raise
            message = self._settled.pop(motion, None)
            if message is None:
                position = self._last_known(words)
            else:
                states = tuple(_held(s) if s.rank in held else s for s in message["states"])
                position = Position(words, states, message["verdict"])
            self._position = self._recorder.add(position)
            return position

    def _hear(self, recorder: Recorder, message: Message) -> None:
        """In the connection's thread. What comes late from before a reset, for its recorder, is not heard."""
        kind = message["kind"]
        if kind == "settled" and message["motion"] in self._abandoned:
            kind, message = "changed", {**message, "what": "came to rest"}
        with self._news:
            if recorder is not self._recorder:
                return
            if kind in ("agent-lost", "controller-lost", "reset-done", "replaced"):
                if self._ended is None:
                    self._ended = _WHY_ENDED[kind]
                    if kind != "replaced" and self._recorder.positions:
                        self._note_loss(kind)
            elif message.get("run") != self._run and self._run != -1:
                return
            elif kind == "settled":
                self._settled[message["motion"]] = message
            elif kind == "changed":
                at_newest = self._position == len(self._recorder.positions) - 1
                index = self._recorder.add(Position(message["what"], message["states"], message["verdict"]))
                self._position = index if at_newest else self._position
            elif kind == "unloaded":
                self._ended = message["error"].message
            else:
                self._recorder.hear(message)
                if message.get("result") is not None:
                    self._results[message["rank"]] = message["result"]
                if kind == "stop" and message["stop"].truncated:
                    self._recorder.note("the capture budget was spent: later stops show lines without tensors")
            self._news.notify_all()
        if kind in ("changed", "agent-lost", "controller-lost", "reset-done", "replaced"):
            self._tell_listeners()

    def _note_loss(self, kind: str) -> None:
        newest = self._recorder.positions[-1]
        if kind == "agent-lost":
            dead = tuple(
                s if s.phase in ENDED else replace(s, phase="dead", detail=_WHY_ENDED[kind]) for s in newest.states
            )
            self._recorder.add(Position("agent lost", dead, _WHY_ENDED[kind]))

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


_WHY_ENDED = {
    "agent-lost": "the cluster's host agent ended",
    "controller-lost": "the cluster's controller ended",
    "reset-done": "the ranks were reset",
    "replaced": "another function was given to the ranks",
}


def _held(state: RankState) -> RankState:
    return replace(state, held=True) if state.phase == "paused" else state


__all__ = ["Package", "Session"]
