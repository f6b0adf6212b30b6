"""Each lab where no cluster can be had: every cell runs, recordings stand in, and every one of them says so."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from kit.session.recorded import shelf
from tests.labs.test_labs import LABS, exercises, run, said, verdicts

SENTENCE = (
    r"made on \d{4}-\d\d-\d\d with \d+ ranks \(.*torch .*\), because there is no cluster here: .*'lockstep doctor'"
)
BROKEN = "libcudart.so.12: cannot open shared object file"


def no_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Folders whose names leave no room for that of a socket: the run folder cannot be made."""
    deep = tmp_path / ("no-room-for-a-socket-" * 6)
    deep.mkdir()
    monkeypatch.setenv("TMPDIR", str(deep))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    return "has too long a name for a socket"


def no_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A torch built for another machine: the agent cannot start, nor can the notebook import it."""
    package = tmp_path / "site" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"raise ImportError({BROKEN!r})\n")
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    return BROKEN


@pytest.mark.parametrize("path", LABS, ids=lambda path: path.stem)
@pytest.mark.parametrize("denied", [no_socket, no_torch], ids=lambda denied: denied.__name__)
def test_a_lab_shows_its_recordings_and_says_so(
    path: Path, denied: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = denied(tmp_path, monkeypatch)
    notebook = run(path, 4, tmp_path, monkeypatch, solutions=False)
    errors = [o for cell in notebook["cells"] for o in cell.get("outputs", []) if o["output_type"] == "error"]
    assert not errors
    assert all(cell.get("execution_count") for cell in notebook["cells"] if cell["cell_type"] == "code")
    (set_up,) = [cell["id"] for cell in notebook["cells"] if "kit.cluster(" in "".join(cell["source"])]
    for name in (set_up, *dict.fromkeys(entry.cell for entry in shelf.load(path.stem).entries)):
        assert re.search(SENTENCE, said(notebook, name)) and why in said(notebook, name), name
    assert verdicts(tmp_path) == {"not attempted": exercises(path)}
    lines = (tmp_path / "verdicts.jsonl").read_text(encoding="utf-8").splitlines()
    assert all(why in json.loads(line)["no_ranks"] for line in lines)
    checks = [cell["id"] for cell in notebook["cells"] if re.search(r"(?m)^check\(", "".join(cell["source"]))]
    assert len(checks) == exercises(path)
    for name in checks:
        assert "not attempted" in said(notebook, name) and "A check needs ranks" in said(notebook, name)
    assert PROMISES.get(path.stem, lambda notebook: True)(notebook)


def test_ranks_are_those_of_the_recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_socket(tmp_path, monkeypatch)
    (path,) = [path for path in LABS if path.stem == "01_collectives"]
    notebook = run(path, 7, tmp_path, monkeypatch, solutions=True)
    assert collectives_promises(notebook)
    assert verdicts(tmp_path) == {"not attempted": exercises(path)}  # never passed, not even the solutions


def test_lockstep_check_does_not_take_it_for_the_real_thing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    no_torch(tmp_path, monkeypatch)
    command = [sys.executable, "-m", "kit.cli", "check", "00"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1
    assert f"no check could run, because there is no cluster here: torch cannot be imported ({BROKEN}" in ended.stdout


def ranks_promises(notebook: dict[str, Any]) -> bool:
    """What the prose of lab 00 tells the reader to look at is there to be seen."""
    return (
        said(notebook, "predict-memory-run").count("rank 3: 1000") == 1
        and "rank 0 waits in all_reduce for ranks 1, 2 and 3" in said(notebook, "step-alone-run")
        and said(notebook, "step-free-run").count("1111.0") == 4
        and "rank 1 finished without it" in said(notebook, "break-hang-run")
        and "meet · stop 0 · recorded" in said(notebook, "step-digits-panel")
    )


def collectives_promises(notebook: dict[str, Any]) -> bool:
    """What the prose of lab 01 tells the reader to look at is there to be seen."""
    return (
        said(notebook, "see-all-reduce-run").count("[1111, 1111]") == 4
        and "1.50 x 1.50 x 1.50 x 1.50 x" in said(notebook, "measure-ring-run")
        and said(notebook, "step-hold-run").count("waits in") == 3
        and "ring_all_reduce · stop 0 · recorded" in said(notebook, "step-ring-panel")
        and "same operation in the same order" in said(notebook, "break-order-run")
    )


def data_parallel_promises(notebook: dict[str, Any]) -> bool:
    """What the prose of lab 03 tells the reader to look at is there to be seen."""
    return (
        said(notebook, "predict-average-run").count("[277.75, 555.5]") == 4
        and "one_step · stop 0 · recorded" in said(notebook, "step-average-panel")
        and "sampler" in said(notebook, "measure-ways-run")
        and "expert     [2232.0, 2232.0]" in said(notebook, "break-skip-run")
        and "Deadlock: ranks 0, 2, 3 wait in all_reduce" in said(notebook, "break-skip-wait")
        and "one bucket for all: a step of" in said(notebook, "tune-run")
        and "(linear)" in said(notebook, "rate-low-run")
    )


PROMISES = {
    "00_ranks": ranks_promises,
    "01_collectives": collectives_promises,
    "03_data_parallel": data_parallel_promises,
}
