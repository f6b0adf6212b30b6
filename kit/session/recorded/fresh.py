"""Whether the recordings of a lab are whole, and of the lab as it is now."""

from __future__ import annotations

import json
from pathlib import Path

import kit
from kit.session.recorded.cell import digest
from kit.session.recorded.shelf import FILE, SWEEP, Entry, Shelf, home, load, remedy
from kit.session.recorded.source import calls
from kit.trace.facts import Trace


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
        shelf = load(lab, folder)
    except ValueError as problem:
        return [str(problem)]
    found = [f"the cell {name!r} is new" for name in wanted if name not in shelf.cells]
    found += [f"the cell {name!r} is gone" for name in shelf.cells if name not in cells]
    both = [name for name in shelf.cells if name in cells]
    found += [f"the cell {name!r} has changed" for name in both if shelf.cells[name] != digest(cells[name][0])]
    named = {name for entry in shelf.entries for name in entry.files}
    found += [
        f"{path.name} belongs to none" for path in sorted(shelf.folder.iterdir()) if path.name not in {*named, FILE}
    ]
    found += [told for entry in shelf.entries for told in _of_entry(shelf, entry, cells)]
    again = f"since lab {lab} was recorded: {remedy(lab)} records it anew"
    return [f"{told} {again}" for told in dict.fromkeys(found)]


def every(labs: Path, folder: Path | None = None) -> list[str]:
    """The complaints about all labs, and about folders of recordings that belong to none."""
    notebooks = sorted(labs.glob("[0-9][0-9]_*.ipynb"))
    strays = {path.name for path in (folder or home()).iterdir()} - {notebook.stem for notebook in notebooks}
    found = [told for notebook in notebooks for told in complaints(notebook, folder)]
    return found + [f"{name} in {folder or home()} belongs to no lab: remove it" for name in sorted(strays)]


def _of_entry(shelf: Shelf, entry: Entry, cells: dict[str, tuple[str, list[str]]]) -> list[str]:
    try:
        if entry.mode == SWEEP:
            shelf.sweep(entry)
            return []
        traces = shelf.traces(entry)
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
    """The text of '<cell>' or of 'kit/parallel/...' as it is today; None where there is no such text."""
    if file.startswith("<"):
        text, _ = cells.get(file.strip("<>"), (None, []))
        return text
    path = Path(kit.__file__).parent.parent / file
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _cells(notebook: Path) -> dict[str, tuple[str, list[str]]]:
    """The code cells by id: (text, tags)."""
    page = json.loads(notebook.read_text(encoding="utf-8"))
    return {
        cell["id"]: ("".join(cell["source"]), cell["metadata"].get("tags", []))
        for cell in page["cells"]
        if cell["cell_type"] == "code"
    }
