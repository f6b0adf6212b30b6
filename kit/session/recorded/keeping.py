"""Keeps what a lab's cells step, record and sweep, while `lockstep record` runs the lab.

The command puts `begin(...)` before the lab's cells and `end(...)` after them. In between every session and every
record is as always, and at the end they are put on the lab's shelf.
"""

from __future__ import annotations

import json
import shutil
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kit
from kit.cost.sweep import Sweep
from kit.session.errors import NotFinished, RankError
from kit.session.recorded import values
from kit.session.recorded.cell import digest, running
from kit.session.recorded.shelf import RECORD, STEP, SWEEP, Entry, Shelf
from kit.session.recorded.source import calls, source_of
from kit.session.session import Session
from kit.trace.facts import Trace

if TYPE_CHECKING:
    from kit.cluster import Cluster
    from kit.session.meta import Call
    from kit.session.record import Recording

WALK = 120  # positions by which a session goes on when its lab has left it, for readers who press Step
_keeper: Keeper | None = None


def current() -> Keeper | None:
    """The keeper at work in this kernel; None in every kernel but those of `lockstep record`."""
    return _keeper


def begin(notebook: str | Path) -> None:
    """From now on this kernel's runs are kept, by the cells of `notebook`."""
    global _keeper
    _keeper = Keeper(Path(notebook))


def end(folder: str | Path) -> None:
    """Writes what was kept into `folder`, which is made new. ValueError where the lab has had no cluster."""
    global _keeper
    keeper, _keeper = _keeper, None
    if keeper is None:
        raise ValueError("nothing is kept: begin(notebook) comes first")
    keeper.save(Path(folder))


class KeptSession(Session):
    """A session whose record is kept whenever it is about to be lost."""

    def __init__(self, keeper: Keeper, cluster: Cluster, call: Call) -> None:
        self._keeper = keeper
        self._over = False  # the record is kept as it was: what comes after belongs to whoever took the ranks
        self.lives: list[Trace] = []
        self.returned: list[Any] | None = None
        self.script = ""
        super().__init__(cluster, *call)

    def reset(self) -> Any:
        self._keeper.make_way(self)
        self.end_life()
        position = super().reset()
        self._over = False
        return position

    def export(self, path: str | Path) -> Path:
        written = super().export(path)
        self.script = written.read_text(encoding="utf-8")
        return written

    def end_life(self) -> None:
        if self._over:
            return
        self._over = True
        self.lives.append(self.trace)
        try:
            self.returned = self.results
        except NotFinished:
            pass  # a lab may leave a session anywhere

    def walk_on(self) -> None:
        """Goes on line by line for as long as every rank can: a reader of the recording may want to."""
        stops: tuple[int, ...] = ()
        for _ in range(WALK):
            state = self.trace.positions[-1]
            before, stops = stops, tuple(rank.stop for rank in state)
            stuck = state.verdict is not None or stops == before or any(rank.phase == "running" for rank in state)
            if stuck or self.ended is not None or not any(rank.phase == "paused" for rank in state):
                return
            view = self.position
            self.step()
            self.seek(view)


@dataclass
class _Kept:
    cell: str
    mode: str
    call: Call | None = None
    arguments: str = ""
    session: KeptSession | None = None
    trace: Trace | None = None
    results: list[Any] | None = None
    error: str = ""
    sweep: Sweep | None = None
    same: _Kept | None = None  # the run before, when this one repeats it


@dataclass
class Keeper:
    notebook: Path
    kept: list[_Kept] = field(default_factory=list)
    cluster: Cluster | None = None
    live: KeptSession | None = None

    def __post_init__(self) -> None:
        page = json.loads(self.notebook.read_text(encoding="utf-8"))
        self.cells = {c["id"]: "".join(c["source"]) for c in page["cells"] if c["cell_type"] == "code"}
        tags = {c["id"]: c["metadata"].get("tags", []) for c in page["cells"] if c["cell_type"] == "code"}
        self.wanted = {name for name, text in self.cells.items() if calls(text) or "parameters" in tags[name]}

    def make_way(self, session: KeptSession | None = None) -> None:
        """Something else is about to run on the ranks: the session before goes on to its end, unseen."""
        live, self.live = self.live, session
        if live is not None and live is not session:
            live.walk_on()
            live.end_life()

    def step(self, cluster: Cluster, call: Call) -> Session:
        self.make_way()
        self.cluster, self.live = cluster, KeptSession(self, cluster, call)
        self.kept.append(_Kept(self._cell(), STEP, call, values.arguments(*call[1:]), session=self.live))
        return self.live

    def record(self, cluster: Cluster, call: Call, run: Callable[[], Recording]) -> Recording:
        self.make_way()
        self.cluster = cluster
        kept = _Kept(self._cell(), RECORD, call, values.arguments(*call[1:]))
        try:
            recording = run()
        except RankError as error:
            kept.trace, kept.error = error.trace, str(error)
            self.kept.append(kept)
            raise
        kept.trace, kept.results = recording.trace, recording.results
        world = recording.trace.meta.world
        kept.arguments = values.arguments(*call[1:], first=None if world == cluster.size else world)
        before = self.kept[-1] if self.kept else None
        if before is not None and _same_call(kept, before):
            kept.same = before.same or before
        self.kept.append(kept)
        return recording

    def sweep(self, run: Callable[[], Sweep]) -> Sweep:
        self.make_way()
        sweep = run()
        self.kept.append(_Kept(self._cell(), SWEEP, sweep=sweep))
        return sweep

    def save(self, folder: Path) -> None:
        self.make_way()
        if self.cluster is None:
            raise ValueError(f"{self.notebook.stem} has had no ranks to record: `lockstep doctor` says why")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        files: dict[int, tuple[str, ...]] = {}
        entries = tuple(self._entry(kept, folder, files) for kept in self.kept)
        report = self.cluster.report()
        cells = self.wanted | {kept.cell for kept in self.kept}
        Shelf(
            lab=self.notebook.stem,
            ranks=self.cluster.size,
            backend=report.backend,
            devices=report.devices,
            links=tuple((link.between, link.kind) for link in report.links),
            software=report.software,
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            cells={name: digest(text) for name, text in self.cells.items() if name in cells},
            entries=entries,
            folder=folder,
        ).save()

    def _cell(self) -> str:
        text = running()[0]
        found = next((name for name, own in self.cells.items() if digest(own) == text), None)
        if found is None:
            raise ValueError(f"this cell is none of {self.notebook.name}: what it runs cannot be kept")
        return found

    def _entry(self, kept: _Kept, folder: Path, files: dict[int, tuple[str, ...]]) -> Entry:
        if kept.sweep is not None:
            return Entry(kept.cell, SWEEP, (kept.sweep.save(_free(folder, kept.cell, ".sweep.json")).name,))
        assert kept.call is not None
        function = kept.call[0]
        results, script = kept.results, ""
        if kept.session is not None:
            traces, results, script = _told_apart(kept.session.lives), kept.session.returned, kept.session.script
        else:
            assert kept.trace is not None
            traces = [kept.trace]
        if kept.same is not None:
            files[id(kept)] = files[id(kept.same)]
        else:
            clean = [without_this_machine(trace, self.cells) for trace in traces]
            files[id(kept)] = tuple(trace.save(_free(folder, kept.cell, ".trace")).name for trace in clean)
        return Entry(
            cell=kept.cell,
            mode=kept.mode,
            files=files[id(kept)],
            function=function.__name__,
            source=source_of(function),
            arguments=kept.arguments,
            results=None if results is None else tuple(values.encode(result) for result in results),
            error=kept.error,
            script=script,
        )


def without_this_machine(trace: Trace, cells: dict[str, str]) -> Trace:
    """The trace with files named after cells ('<see-it-run>') and rooms ('kit/parallel/...') instead of paths."""
    texts = {text.strip(): name for name, text in cells.items()}
    names = {}
    for source in trace.sources:
        cell = texts.get("\n".join(source.lines).strip())
        names[source.file] = f"<{cell}>" if cell else source.label
    for place in (
        Path(kit.__file__).parents[1],
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


def _same_call(one: _Kept, other: _Kept) -> bool:
    """Once more, as in a loop for the best of five: its results are kept, its trace is not."""
    return not other.error and _told(one) == _told(other)


def _told(kept: _Kept) -> tuple[Any, ...] | None:
    if kept.call is None or kept.trace is None:
        return None
    return kept.cell, kept.trace.meta.function, kept.trace.meta.notes, kept.arguments


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
