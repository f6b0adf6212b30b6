"""Make the recordings of labs: run each with its cluster, and keep what its cells step, record and sweep."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit import resources
from kit.grade.run import Settings, run

if TYPE_CHECKING:
    from kit.grade.notebooks import Notebook

BUDGET = 700_000  # bytes that the recordings of one lab may have: they are part of every wheel and every clone


@dataclass(frozen=True)
class Recorded:
    """What came of one lab. `trouble` is a sentence when its recordings could not be made; then the old ones stay."""

    lab: str
    files: int = 0
    nbytes: int = 0
    trouble: str = ""

    def __str__(self) -> str:
        if self.trouble:
            return f"{self.lab}: not recorded: {self.trouble}."
        return f"{self.lab}: {self.files} files, {self.nbytes / 1000:.0f} kB of {BUDGET / 1000:.0f} kB"


def record_all(notebooks: Sequence[Notebook], into: Path | None, settings: Settings) -> Iterator[Recorded]:
    """Record the labs one after the other, each into `into/NN_topic`, which is replaced when all went well.

    into None: the recordings that come with Lockstep, and `traces` beside a lab of one's own. Raises ValueError where
    those are an installed wheel's.
    """
    for notebook in notebooks:
        with tempfile.TemporaryDirectory(prefix="lockstep-record-") as scratch:
            yield _record(notebook, into or _home(notebook), settings, Path(scratch))


def _home(notebook: Notebook) -> Path:
    beside = resources.lab_folder(notebook.path.parent)
    if (beside.topics / resources.topic_of(notebook.path.stem)).is_dir():
        return beside.traces
    if resources.installed():
        raise ValueError("recordings belong into a checkout of Lockstep: name a folder of your own with --into DIR.")
    return resources.shipped().traces


def _record(notebook: Notebook, into: Path, settings: Settings, scratch: Path) -> Recorded:
    lab, made = notebook.path.stem, scratch / "made"
    recorder = "from kit.run.recordings import lab_recorder"
    page = json.loads(notebook.path.read_text(encoding="utf-8"))
    first = _cell("record-what-runs", f"{recorder}\n\nlab_recorder.begin({str(notebook.path)!r})")
    last = _cell("write-the-recordings", f"{recorder}\n\nlab_recorder.end({str(made)!r})")
    page["cells"] = [first, *page["cells"], last]
    copy = scratch / f"{lab}.ipynb"
    copy.write_text(json.dumps(page), encoding="utf-8")
    outcome = run(replace(notebook, path=copy, shipped=False), settings, scratch / "run")
    if outcome.trouble or not made.is_dir():
        return Recorded(lab, trouble=outcome.trouble or "it kept nothing")
    sizes = {path.name: path.stat().st_size for path in made.iterdir()}
    total = sum(sizes.values())
    if total > BUDGET:
        large = sorted(sizes, key=lambda name: -sizes[name])[:3]
        told = ", ".join(f"{name} {sizes[name] / 1000:.0f} kB" for name in large)
        return Recorded(lab, trouble=f"{total / 1000:.0f} kB are more than {BUDGET / 1000:.0f} kB ({told})")
    _replace(into / lab, made)
    return Recorded(lab, len(sizes), total)


def _replace(old: Path, new: Path) -> None:
    """In one move, so that a disk that fills up meanwhile costs nothing that was there."""
    old.parent.mkdir(parents=True, exist_ok=True)
    beside = old.with_name(f".{old.name}.{os.getpid()}")
    shutil.copytree(new, beside)
    shutil.rmtree(old, ignore_errors=True)
    beside.rename(old)


def _cell(name: str, text: str) -> dict[str, Any]:
    return {"cell_type": "code", "id": name, "source": text, "metadata": {}, "outputs": [], "execution_count": None}
