"""Each lab where no cluster can be had: every cell runs, recordings stand in, and every one of them says so."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from kit.run.recordings import index
from tests.labs.test_labs import LABS, exercises, promises_of, run, said, verdicts
from tests.unit.grade.notebooks import write

SENTENCE = (
    r"made on \d{4}-\d\d-\d\d with \d+ ranks \(.*torch .*\), because there is no cluster here: .*'lockstep doctor'"
)


FEW = 96  # open files: enough for a kernel, too few for a controller


def few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every Python that is started from now on may have few files open; what is said where ranks would be started."""
    limit = f"import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, ({FEW}, {FEW}))\n"
    with (tmp_path / "sitecustomize.py").open("a") as file:
        file.write(limit)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return f"a process may have {FEW} files open here"


@pytest.mark.usefixtures("quick_torchrun")
@pytest.mark.parametrize("path", LABS, ids=lambda path: path.stem)
def test_a_lab_shows_its_recordings_and_says_so(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With seven ranks asked for, where recordings have four, and with solutions: they pass no check here either.

    A long lab is run as it is handed out, which no other test of the usual run does.
    """
    why = few_files(tmp_path, monkeypatch)
    handed_out = promises_of(path).LONG
    notebook = run(path, 4 if handed_out else 7, tmp_path, monkeypatch, solutions=not handed_out)
    errors = [o for cell in notebook["cells"] for o in cell.get("outputs", []) if o["output_type"] == "error"]
    assert not errors
    assert all(cell.get("execution_count") for cell in notebook["cells"] if cell["cell_type"] == "code")
    (set_up,) = [cell["id"] for cell in notebook["cells"] if "kit.cluster(" in "".join(cell["source"])]
    for name in (set_up, *dict.fromkeys(entry.cell for entry in index.load(path.stem).entries)):
        assert re.search(SENTENCE, said(notebook, name)) and why in said(notebook, name), name
    assert verdicts(tmp_path) == {"not attempted": exercises(path)}
    lines = (tmp_path / "verdicts.jsonl").read_text(encoding="utf-8").splitlines()
    assert all(why in json.loads(line)["no_ranks"] for line in lines)
    checks = [
        cell["id"] for cell in notebook["cells"] if re.search(r"(?m)^(?:\w+ = )?check\(", "".join(cell["source"]))
    ]
    assert len(checks) == exercises(path)
    for name in checks:
        assert "not attempted" in said(notebook, name) and "A check needs ranks" in said(notebook, name)
    promises_of(path).replayed(partial(said, notebook))


def test_lockstep_check_does_not_take_it_for_the_real_thing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    why = few_files(tmp_path, monkeypatch)
    (path,) = (path for path in LABS if path.stem == "00_ranks")
    texts = {cell["id"]: "".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]}
    few = ("parameters", "set-up-cluster", "write-share-stub", "check-share-run")
    write(tmp_path / "small.ipynb", *(texts[name] for name in few))
    command = [sys.executable, "-m", "kit.cli", "check", "small.ipynb"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "no check could run, because there is no cluster here: " in ended.stdout and why in ended.stdout
