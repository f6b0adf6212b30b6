"""What `kit.step` and `kit.record` return where recordings stand in for ranks: faces of a session and of a record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kit.session.errors import NotFinished, RankError
from kit.session.meta import Call
from kit.session.record import Recording
from kit.session.recorded import placeholders, values
from kit.session.recorded.cell import announce
from kit.session.recorded.shelf import Entry
from kit.session.recorded.source import source_of
from kit.session.replay import Replay
from kit.trace.facts import Position, Trace


class NoRanks(RuntimeError):
    """Something needs ranks, and there are none and no recording of it. The message says why and what to do."""


class RecordedError(RankError):
    """The RankError that a recorded run ended in."""

    about = ""


class RecordedSession(Replay):
    """A session whose ranks have gone this way before. A motion goes where the same motion led when it was recorded.

    Motions that were not made then go one position on. `about` is the sentence that says what this is.
    """

    def __init__(self, entry: Entry, traces: Sequence[Trace], call: Call, about: str) -> None:
        super().__init__(traces[0])
        self._entry, self._lives, self._call = entry, list(traces), call
        self.about = about

    @property
    def ended(self) -> str | None:
        return "a recording"

    def step(self, ranks: Sequence[int] | None = None, timeout: float = 0.0) -> Position:
        return self._move("step")

    def over(self, ranks: Sequence[int] | None = None, timeout: float = 0.0) -> Position:
        return self._move("over")

    def into(self, ranks: Sequence[int] | None = None, timeout: float = 0.0) -> Position:
        return self._move("into")

    def out(self, ranks: Sequence[int] | None = None, timeout: float = 0.0) -> Position:
        return self._move("out")

    def to_collective(self, ranks: Sequence[int] | None = None, timeout: float = 0.0) -> Position:
        return self._move("to_collective")

    def to_line(
        self, line: int, file: str | None = None, ranks: Sequence[int] | None = None, timeout: float = 0.0
    ) -> Position:
        return self._move("to_line")

    def finish(self, ranks: Sequence[int] | None = None, timeout: float = 0.0) -> Position:
        return self._move("finish")

    def reset(self) -> Position:
        """Before the first line, in the record of what the lab did from there on."""
        announce(self.about)
        if len(self._lives) > 1:
            self._lives.pop(0)
            self._trace = self._lives[0]
        return self.seek(0)

    def close(self) -> None:
        """There are no ranks to be let go."""

    @property
    def results(self) -> list[Any]:
        """What the function returned when it was recorded, by rank."""
        announce(self.about)
        if self._entry.results is None:
            raise NotFinished("not every rank had finished when this was recorded: there are no results")
        return [values.decode(result) for result in self._entry.results]

    def export(self, path: str | Path) -> Path:
        """Writes a plain script, as a session with ranks does."""
        announce(self.about)
        return _export(path, self._entry, self._call, self._trace.meta.world)

    def _move(self, how: str) -> Position:
        announce(self.about)
        later = range(self._position + 1, len(self._trace.positions))
        led_to = (index for index in later if self._trace.positions[index].motion.partition(" ")[0] == how)
        found = next(led_to, None)
        if found is not None:
            return self.seek(found)
        return self.seek(-1) if how == "finish" else self.forward()

    def __repr__(self) -> str:
        return f"Recorded session of {self._trace.meta.function}: position {self._position}\n{self.state}"


class RecordedRun(Recording):
    """A record that was made elsewhere. `about` is the sentence that says where, and why it is shown."""

    def __init__(self, entry: Entry, trace: Trace, call: Call, about: str) -> None:
        super().__init__(trace, [], call)
        self._entry = entry
        self.about = about

    @property
    def results(self) -> list[Any]:
        """What the function returned when it was recorded, by rank."""
        return [values.decode(result) for result in self._entry.results or ()]

    def export(self, path: str | Path) -> Path:
        """Writes a plain script, as a record with ranks does."""
        return _export(path, self._entry, self._call, self.trace.meta.world)


def changed(function: Callable[..., Any], entry: Entry) -> bool:
    """Whether the function's text is another than the recorded one's; a function without text is taken as it is."""
    text = source_of(function)
    return bool(text) and bool(entry.source) and text != entry.source


def _export(path: str | Path, entry: Entry, call: Call, world: int) -> Path:
    from kit.session.export import write

    if not placeholders.standing():
        return write(path, *call, world=world)
    if not entry.script:
        raise NoRanks(f"{entry.function} cannot be written as a script without torch: its arguments are placeholders")
    target = Path(path)
    target.write_text(entry.script, encoding="utf-8")
    return target
