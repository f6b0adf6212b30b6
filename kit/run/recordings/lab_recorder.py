"""Records what a lab's cells step, record and sweep, while `lockstep record` runs the lab.

The command puts `begin(notebook)` before the lab's cells and `end(folder)` after them. In between every session and
every record is as always, and at the end they are written into an index of recordings.
"""

from __future__ import annotations

import json
import shutil
import sysconfig
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, Self

from kit.resources import root
from kit.run import current
from kit.run.errors import NoRanks, NotFinished, RankError
from kit.run.recordings import values
from kit.run.recordings.cell import calls, digest, running, source_of
from kit.run.recordings.index import KEPT, RECORD, STEP, SWEEP, Entry, RecordingIndex
from kit.run.runner import Report, Runner, RunOptions, SweepPlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.cost.sweep import Sweep
    from kit.run.call import Call
    from kit.run.cursor import Steppable
    from kit.run.results import Recording
    from kit.run.slow_links import SlowLinks
    from kit.trace.trace import Trace

WALK = 120  # positions by which a session goes on when its lab has left it, for readers who press Step
_recorder: LabRecorder | None = None


def begin(notebook: str | Path) -> None:
    """From now on what this kernel runs is recorded, by the cells of `notebook`."""
    global _recorder
    _recorder = LabRecorder(Path(notebook))
    current.put_around(_recorder.around)


def end(folder: str | Path) -> None:
    """Writes what was recorded into `folder`, which is made new. ValueError where the lab has had no ranks."""
    global _recorder
    recorder, _recorder = _recorder, None
    current.put_around(None)
    if recorder is None:
        raise ValueError("nothing was recorded: begin(notebook) comes first")
    recorder.save(Path(folder))


@dataclass
class _Kept:
    """One call of a cell, and what came of it."""

    cell: str
    call: Call
    mode: str = RECORD
    arguments: str = ""
    traces: list[Trace] = field(default_factory=list)  # of a session one for each time it stood before its first line
    results: list[Any] | None = None
    error: str = ""
    files: tuple[str, ...] = ()  # those of the traces, once they are saved
    before: _Kept | None = None  # the run that this one repeats, as in a loop for the best of five: its trace will do

    def repeats(self, other: _Kept) -> bool:
        return not other.error and self._told() == other._told()

    def _told(self) -> tuple[Any, ...]:
        return self.mode, self.cell, self.arguments, [(trace.meta.function, trace.meta.notes) for trace in self.traces]

    def entry(self, folder: Path, cells: dict[str, str]) -> Entry:
        """Saves the traces."""
        if self.before is not None:
            self.files = self.before.files
        else:
            clean = [without_this_machine(trace, cells) for trace in _told_apart(self.traces)]
            self.files = tuple(trace.save(_free(folder, self.cell, ".trace")).name for trace in clean)
        return Entry(
            cell=self.cell,
            mode=self.mode,
            files=self.files,
            function=self.call.name,
            source=source_of(self.call.function),
            arguments=self.arguments,
            results=None if self.results is None else tuple(values.encode(result) for result in self.results),
            error=self.error,
        )


class _Walk(_Kept):
    """What a session did."""

    def __init__(self, cell: str, call: Call, session: Steppable) -> None:
        super().__init__(cell, call, STEP, values.arguments(*call[1:]))
        self.session = session
        self.over = False  # the ranks are somebody else's: what the session hears now is not its own

    def keep(self) -> None:
        """The record as it is, before it is lost or the ranks are somebody else's."""
        if self.over:
            return
        self.traces.append(self.session.trace)
        with suppress(NotFinished):  # a lab may leave a session anywhere
            self.results = self.session.results

    def leave(self) -> None:
        self.go_on()
        self.keep()
        self.over = True

    def go_on(self) -> None:
        """Line by line for as long as every rank can: a reader of the recording may want to."""
        session = self.session
        stops: tuple[int, ...] = ()
        for _ in range(WALK):
            state = session.trace.positions[-1]
            before, stops = stops, tuple(rank.stop for rank in state)
            stuck = state.verdict is not None or stops == before or any(rank.phase == "running" for rank in state)
            if stuck or session.ended is not None or not any(rank.phase == "paused" for rank in state):
                return
            view = session.position
            session.step()
            session.seek(view)


@dataclass
class _KeptSweep:
    cell: str
    sweep: Sweep

    def entry(self, folder: Path, cells: dict[str, str]) -> Entry:
        return Entry(self.cell, SWEEP, (self.sweep.save(_free(folder, self.cell, ".sweep.json")).name,))


@dataclass
class _KeptText:
    cell: str
    name: str
    text: Callable[[], str]

    def entry(self, folder: Path, cells: dict[str, str]) -> Entry:
        path = _free(folder, self.cell, f".{self.name}.json")
        here = f"{gettempdir()}/"  # of this machine
        path.write_text(self.text().replace(here, ""), encoding="utf-8")
        return Entry(self.cell, KEPT, (path.name,), self.name)


class LabRecorder(Runner):
    """Runs everything on another runner, and keeps what came of it for readers who have no ranks."""

    def __init__(self, notebook: Path) -> None:
        self.notebook = notebook
        self.inner: Runner | None = None
        self.kept: list[_Kept | _KeptSweep | _KeptText] = []
        self._walk: _Walk | None = None  # of the session that has the ranks
        page = json.loads(notebook.read_text(encoding="utf-8"))
        code = [cell for cell in page["cells"] if cell["cell_type"] == "code"]
        self.cells: dict[str, str] = {cell["id"]: "".join(cell["source"]) for cell in code}
        tagged = {cell["id"] for cell in code if "parameters" in cell["metadata"].get("tags", [])}
        self.wanted = tagged | {name for name, text in self.cells.items() if calls(text)}

    def around(self, runner: Runner) -> Self:
        """This recorder, with `runner` doing the work."""
        self.inner = runner
        return self

    # as a runner

    def open_session(self, call: Call, options: RunOptions) -> Steppable:
        self._make_way()
        session = self._inner.open_session(call, options)
        walk = self._walk = _Walk(self._cell(), call, session)
        session.before_reset(lambda: self._reset(walk))
        self.kept.append(walk)
        return session

    def run(self, call: Call, options: RunOptions, quiet: bool = False) -> Recording:
        self._make_way()
        if quiet:
            return self._inner.run(call, options, quiet)
        run = _Kept(self._cell(), call, arguments=values.arguments(*call[1:]))
        try:
            recording = self._inner.run(call, options)
        except RankError as error:
            run.traces, run.error = [error.trace], str(error)
            self.kept.append(run)
            raise
        run.traces, run.results = [recording.trace], recording.results
        world = recording.trace.meta.world
        run.arguments = values.arguments(*call[1:], first=None if world == self.size else world)
        last = self.kept[-1] if self.kept else None
        if isinstance(last, _Kept) and run.repeats(last):
            run.before = last
        self.kept.append(run)
        return recording

    def sweep(self, plan: SweepPlan) -> Sweep:
        self._make_way()
        sweep = self._inner.sweep(plan)
        self.kept.append(_KeptSweep(self._cell(), sweep))
        return sweep

    @property
    def live(self) -> Runner | None:
        return self._inner.live

    def keep(self, name: str, text: Callable[[], str]) -> None:
        self._make_way()
        self.kept.append(_KeptText(self._cell(), name, text))

    def report(self) -> Report:
        return self._inner.report()

    def reset(self) -> Self:
        self._inner.reset()
        return self

    def stop(self) -> None:
        """Later, with this process: what they are is asked once all cells have run."""

    @property
    def size(self) -> int:
        return self._inner.size

    @property
    def backend(self) -> str:
        return self._inner.backend

    @property
    def devices(self) -> tuple[str, ...]:
        return self._inner.devices

    @property
    def links(self) -> SlowLinks | None:
        return self._inner.links

    @links.setter
    def links(self, slow: SlowLinks | None) -> None:
        self._inner.links = slow

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner, name)  # what only a cluster has: its processes, its view

    @property
    def _inner(self) -> Runner:
        if self.inner is None:
            raise NoRanks("this lab has no cluster yet: kit.cluster(ranks=4) starts one")
        return self.inner

    # what is kept

    def save(self, folder: Path) -> None:
        """Writes the recordings into `folder`, which is made new. ValueError where the lab has had no ranks."""
        self._make_way()
        if not self.kept or self.inner is None:
            raise ValueError(f"{self.notebook.stem} has had no ranks to record: `lockstep doctor` says why")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        entries = tuple(kept.entry(folder, self.cells) for kept in self.kept)
        report = self.report()
        cells = self.wanted | {kept.cell for kept in self.kept}
        RecordingIndex(
            lab=self.notebook.stem,
            ranks=self.size,
            backend=report.backend,
            devices=report.devices,
            links=tuple((link.between, link.kind) for link in report.links),
            software=report.software,
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            cells={name: digest(text) for name, text in self.cells.items() if name in cells},
            entries=entries,
            folder=folder,
        ).save()

    def _make_way(self) -> None:
        """Something else is about to run on the ranks: the session before goes on to its end, unseen."""
        walk, self._walk = self._walk, None
        if walk is not None:
            walk.leave()

    def _reset(self, walk: _Walk) -> None:
        """A session is about to stand before its first line again: it takes the ranks."""
        if self._walk is not walk:
            self._make_way()
        walk.keep()
        walk.over, self._walk = False, walk

    def _cell(self) -> str:
        text = running()[0]
        found = next((name for name, own in self.cells.items() if digest(own) == text), None)
        if found is None:
            raise ValueError(f"this cell is none of {self.notebook.name}: what it runs cannot be recorded")
        return found


def without_this_machine(trace: Trace, cells: dict[str, str]) -> Trace:
    """The trace with files named after cells ('<see-it-run>') and references ('kit/topics/...') instead of paths."""
    texts = {text.strip(): name for name, text in cells.items()}
    names = {}
    for source in trace.sources:
        cell = texts.get("\n".join(source.lines).strip())
        names[source.file] = f"<{cell}>" if cell else source.label
    for place in (
        root(),
        *map(sysconfig.get_path, ("purelib", "platlib", "stdlib")),
        Path.cwd(),
    ):
        names[f"{place}/"] = ""  # in tracebacks
    known: dict[int, Any] = {}

    def renamed(value: Any) -> Any:
        if isinstance(value, str):
            for old, new in names.items():
                value = value.replace(old, new)
            return value
        if isinstance(value, tuple):
            return tuple([renamed(item) for item in value])
        if is_dataclass(value) and not isinstance(value, type):
            if id(value) not in known:
                parts = {part.name: renamed(getattr(value, part.name)) for part in fields(value)}
                known[id(value)] = type(value)(**parts)
            return known[id(value)]
        return value

    found: Trace = renamed(trace)
    return found


def _told_apart(lives: list[Trace]) -> list[Trace]:
    """Without those that another one begins with, motion by motion."""
    walks = [[position.motion for position in life.positions] for life in lives]
    keep = []
    for i, walk in enumerate(walks):
        longer = (j for j, other in enumerate(walks) if other[: len(walk)] == walk and (len(other), j) > (len(walk), i))
        if next(longer, None) is None:
            keep.append(lives[i])
    return keep


def _free(folder: Path, cell: str, ending: str) -> Path:
    """'cell.trace', then 'cell-2.trace', ..."""
    names = [f"{cell}{ending}", *(f"{cell}-{number}{ending}" for number in range(2, 1000))]
    return next(folder / name for name in names if not (folder / name).exists())
