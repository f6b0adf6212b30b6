"""The recordings of one lab on disk: `assets/traces/NN_topic/recordings.json`, and the files it names.

A recording is found by the function's name, the cell that calls it and the arguments; the trace files are ordinary
ones, which `kit.load` and `Trace.load` read too.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from kit.cost.sweep import Sweep
from kit.resources import traces_of
from kit.trace.trace import Trace

SCHEMA = "lockstep-recordings"
VERSION = 1
FILE = "recordings.json"
STEP, RECORD, SWEEP, KEPT = "step", "record", "sweep", "kept"


@dataclass(frozen=True)
class Entry:
    """One call of `kit.step`, `kit.record` or `kit.bandwidth` in a lab, or what a topic wanted kept (`Runner.keep`)."""

    cell: str  # the id of the cell that made it
    mode: str  # STEP, RECORD, SWEEP or KEPT
    files: tuple[str, ...]  # the trace, of a session one for each time it stood before the first line; or the other
    function: str = ""
    source: str = ""  # the function's text
    arguments: str = ""  # see `values.arguments`
    results: tuple[Any, ...] | None = None  # by rank, see `values.encode`; None where not every rank had one
    error: str = ""  # the sentences of the RankError that it ended in


@dataclass(frozen=True)
class RecordingIndex:
    """All recordings of a lab, and what they were made on. `load` reads them."""

    lab: str
    ranks: int
    backend: str
    devices: tuple[str, ...]
    links: tuple[tuple[str, str], ...]  # (between, kind), as in a cluster's report
    software: str
    made: str  # ISO 8601, UTC
    cells: dict[str, str]  # id -> digest of each cell that calls, called or not, and of the parameters
    entries: tuple[Entry, ...]
    folder: Path = field(default=Path(), compare=False)

    def traces(self, entry: Entry) -> tuple[Trace, ...]:
        """ValueError, with what to do, for a damaged file or one of another version; OSError for a missing one."""
        return tuple(Trace.load(self.folder / name) for name in entry.files)

    def sweep(self, entry: Entry) -> Sweep:
        return Sweep.load(self.folder / entry.files[0])

    def kept(self, entry: Entry) -> str:
        return (self.folder / entry.files[0]).read_text(encoding="utf-8")

    def calls(self, mode: str, function: str, arguments: str, cell: str) -> list[Entry]:
        """The recordings a call may mean, in their order: those of its cell first of all, then those of the function
        anywhere; among them those with the same arguments, where there are any.

        cell: the digest of the cell's text, which no recording has when the cell was edited.
        """
        alike = [entry for entry in self.entries if (entry.mode, entry.function) == (mode, function)]
        here = [entry for entry in alike if self.cells.get(entry.cell) == cell] or alike
        return [entry for entry in here if entry.arguments == arguments] or here

    def save(self) -> Path:
        """Writes the index into its folder, a line for each recording."""
        content = {name: value for name, value in asdict(self).items() if name not in ("folder", "entries")}
        head = {"schema": SCHEMA, "version": VERSION, **content}
        lines = [f" {_json(name)}: {_json(value)}" for name, value in head.items()]
        entries = ",\n".join(f"  {_json(_filled(entry))}" for entry in self.entries)
        target = self.folder / FILE
        target.write_text("{\n" + ",\n".join([*lines, f' "entries": [\n{entries}\n ]']) + "\n}\n", encoding="utf-8")
        return target


def remedy(lab: str) -> str:
    """The command that makes a lab's recordings."""
    return f"`lockstep record {lab.partition('_')[0]}`"


def load(lab: str, folder: Path | None = None) -> RecordingIndex:
    """The recordings of a lab, in `folder` (None: those that come with Lockstep).

    ValueError, with the command that makes them, where there are none, or for another version or a damaged index.
    """
    place = (folder or traces_of(lab)) / lab
    index = place / FILE
    if not index.is_file():
        known = ", ".join(sorted(path.parent.name for path in place.parent.glob(f"*/{FILE}"))) or "no lab"
        raise ValueError(
            f"there are no recordings of lab {lab!r} in {place.parent}, of {known}: {remedy(lab)} makes them"
        )
    try:
        content = json.loads(index.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.pop("schema", None) != SCHEMA:
            raise ValueError("it does not say that it is one")
        version = content.pop("version", None)
        if version == VERSION:
            return _index(content, place)
    except (ValueError, TypeError, KeyError) as problem:
        raise ValueError(
            f"{index} is not a list of recordings that can be read ({problem}): {remedy(lab)} makes it anew"
        ) from problem
    raise ValueError(
        f"{index} is of version {version!r}; this Lockstep reads version {VERSION}. Upgrade lockstep-labs, or make the "
        f"recordings anew with {remedy(lab)}."
    )


def _filled(entry: Entry) -> dict[str, Any]:
    return {name: value for name, value in asdict(entry).items() if value != ""}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _index(content: dict[str, Any], folder: Path) -> RecordingIndex:
    entries = tuple(_entry(found) for found in content.pop("entries"))
    links = tuple((str(between), str(kind)) for between, kind in content.pop("links"))
    index = RecordingIndex(
        **{**content, "devices": tuple(content["devices"])}, links=links, entries=entries, folder=folder
    )
    for name, kind in (("lab", str), ("ranks", int), ("cells", dict), ("made", str), ("backend", str)):
        if not isinstance(getattr(index, name), kind):
            raise ValueError(f"{name} is {str(getattr(index, name))[:40]!r}")
    return index


def _entry(found: dict[str, Any]) -> Entry:
    results, files = found.pop("results", None), found.pop("files")
    if not files or not all(_is_plain(name) for name in files):
        raise ValueError(f"a recording names the files {files!r}")
    if not all(isinstance(value, str) for value in found.values()):
        raise ValueError(f"a recording of {found.get('function')!r} holds what is no text")
    known = {part.name: found[part.name] for part in fields(Entry) if part.name in found}
    return Entry(**known, files=tuple(files), results=None if results is None else tuple(results))


def _is_plain(name: object) -> bool:
    """A file of this folder, never one outside it."""
    return isinstance(name, str) and Path(name).name == name and not name.startswith(".")
