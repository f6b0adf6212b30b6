"""Whether the recordings of a lab are whole, and of the lab as it is now."""

from __future__ import annotations

import json
from pathlib import Path

from kit import resources
from kit.resources import assets
from kit.run.recordings.cell import calls, digest
from kit.run.recordings.index import FILE, KEPT, SWEEP, Entry, RecordingIndex, load, remedy
from kit.trace.trace import Trace


def complaints(notebook: Path, folder: Path | None = None) -> list[str]:
    """What is wrong with a lab's recordings in `folder` (None: those that come with Lockstep), a sentence each.

    Looked at: every file, the cells that step, record or sweep, and the text of all code that was recorded. A lab that
    does none of it needs no recordings.
    """
    lab, cells = notebook.stem, _cells(notebook)
    wanted = [name for name, (text, tags) in cells.items() if calls(text) or "parameters" in tags]
    if not any(calls(text) for text, _ in cells.values()):
        return []
    try:
        index = load(lab, folder)
    except ValueError as problem:
        return [str(problem)]
    found = [f"the cell {name!r} is new" for name in wanted if name not in index.cells]
    found += [f"the cell {name!r} is gone" for name in index.cells if name not in cells]
    both = [name for name in index.cells if name in cells]
    found += [f"the cell {name!r} has changed" for name in both if index.cells[name] != digest(cells[name][0])]
    named = {name for entry in index.entries for name in entry.files}
    found += [
        f"{path.name} belongs to none" for path in sorted(index.folder.iterdir()) if path.name not in {*named, FILE}
    ]
    found += [told for entry in index.entries for told in _of_entry(index, entry, cells)]
    again = f"since lab {lab} was recorded: {remedy(lab)} records it anew"
    return [f"{told} {again}" for told in dict.fromkeys(found)]


def every(labs: Path, folder: Path | None = None) -> list[str]:
    """The complaints about all labs, and about folders of recordings that belong to none."""
    home = folder or assets() / "traces"
    notebooks = resources.lab_folder(labs).notebooks()
    strays = {path.name for path in home.iterdir()} - {notebook.stem for notebook in notebooks}
    found = [told for notebook in notebooks for told in complaints(notebook, folder)]
    return found + [f"{name} in {home} belongs to no lab: remove it" for name in sorted(strays)]


def _of_entry(index: RecordingIndex, entry: Entry, cells: dict[str, tuple[str, list[str]]]) -> list[str]:
    try:
        if entry.mode == SWEEP:
            index.sweep(entry)
            return []
        if entry.mode == KEPT:
            json.loads(index.kept(entry))
            return []
        traces = index.traces(entry)
    except FileNotFoundError as missing:
        return [f"{Path(str(missing.filename)).name} is missing"]
    except ValueError as problem:
        return [f"{problem} It is damaged"]
    return [told for trace in traces for told in _of_trace(trace, cells)]


def _of_trace(trace: Trace, cells: dict[str, tuple[str, list[str]]]) -> list[str]:
    found = []
    for source in trace.sources:
        now = _text_now(source.file, cells)
        if now is None:
            found.append(f"{source.file} is gone")
        elif now.strip() != "\n".join(source.lines).strip():
            found.append(f"the text of {source.file} has changed")
    return found


def _text_now(file: str, cells: dict[str, tuple[str, list[str]]]) -> str | None:
    """The text of '<cell>', of 'kit/topics/...' or 'kit/gpt/...' as it is today; None where there is no such text."""
    if file.startswith("<"):
        text, _ = cells.get(file.strip("<>"), (None, []))
        return text
    if file.startswith("kit/gpt/"):  # a model that labs train
        path = resources.root() / file
        return path.read_text(encoding="utf-8") if path.is_file() else None
    if not file.startswith("kit/topics/"):
        return None
    topics = (folder.topics for folder in (resources.shipped(), *resources.own()))
    paths = (topic / Path(file).relative_to("kit/topics") for topic in topics)
    return next((path.read_text(encoding="utf-8") for path in paths if path.is_file()), None)


def _cells(notebook: Path) -> dict[str, tuple[str, list[str]]]:
    """The code cells by id: (text, tags)."""
    page = json.loads(notebook.read_text(encoding="utf-8"))
    return {
        cell["id"]: ("".join(cell["source"]), cell["metadata"].get("tags", []))
        for cell in page["cells"]
        if cell["cell_type"] == "code"
    }
