"""Each lab from its first cell to its last, on real ranks, as papermill runs it: solved, and untouched."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kit import resources
from kit.cli.new import promises
from kit.grade.execute import execute
from kit.resources import LabName
from tests.launch import as_torchrun

LABS = resources.shipped().notebooks()
every_lab = pytest.mark.parametrize("path", LABS, ids=lambda path: path.stem)


def run(path: Path, world: int, folder: Path, monkeypatch: pytest.MonkeyPatch, solutions: bool) -> dict[str, Any]:
    """The notebook as it stands after all its cells ran; raises for a cell with an error."""
    monkeypatch.setenv("LOCKSTEP_VERDICTS", str(folder / "verdicts.jsonl"))
    monkeypatch.setenv("LOCKSTEP_SOLUTIONS", "1" if solutions else "0")
    done = folder / "done.ipynb"
    execute(path, done, folder, 300.0, {"ranks": world, **quick(path)})
    return json.loads(done.read_text(encoding="utf-8"))


def verdicts(folder: Path) -> Counter[str]:
    lines = (folder / "verdicts.jsonl").read_text(encoding="utf-8").splitlines()
    return Counter(json.loads(line)["outcome"] for line in lines)


def said(notebook: dict[str, Any], name: str) -> str:
    """Everything a cell put out, as text; without what is said of a run that takes its time on a busy machine."""
    cell = next(cell for cell in notebook["cells"] if cell["id"] == name)
    plain = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell["outputs"]]
    texts = ("".join(text) for text in plain)
    return "\n".join(text for text in texts if not text.startswith("the run took "))


def quick(path: Path) -> dict[str, Any]:
    """Parameters with which a lab of ours is over sooner; others have promised nothing."""
    ours = any(lab.stem == path.stem for lab in LABS)
    return getattr(promises_of(path), "QUICK", {}) if ours else {}


def promises_of(path: Path) -> ModuleType:
    """What the prose of a lab tells its reader to look at, tested beside its topic."""
    name = LabName.read(path.stem)
    assert name is not None
    return import_module(f"tests.topics.{name.topic}.{promises(name)}")


def exercises(path: Path) -> int:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return sum("@exercise(" in "".join(cell["source"]) for cell in cells)


@pytest.mark.usefixtures("quick_torchrun")
@every_lab
def test_solved(path, lab_ranks, tmp_path, monkeypatch):
    notebook = run(path, lab_ranks, tmp_path, monkeypatch, solutions=True)
    assert verdicts(tmp_path) == {"passed": exercises(path)}
    assert all(cell.get("execution_count") for cell in notebook["cells"] if cell["cell_type"] == "code")
    (name,) = re.findall(r'\.export\("(\w+\.py)"\)', "".join(notebook["cells"][-1]["source"]))
    script, told = tmp_path / name, promises_of(path)
    assert not re.search(r"^\s*(import|from) kit\b", script.read_text(encoding="utf-8"), re.MULTILINE)
    assert re.search(told.script(lab_ranks), as_torchrun(script, lab_ranks))
    if lab_ranks == 3:
        told.solved(partial(said, notebook))


@pytest.mark.usefixtures("quick_torchrun")
@every_lab
def test_untouched(path, lab_ranks, tmp_path, monkeypatch):
    run(path, lab_ranks, tmp_path, monkeypatch, solutions=False)
    assert verdicts(tmp_path) == {"not attempted": exercises(path)}
