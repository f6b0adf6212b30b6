"""Each lab with its solutions, on ranks whose groups have NCCL's manners."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.labs.test_labs import LABS, exercises, run, verdicts
from tests.manners import BOOT


@pytest.fixture
def kernels_with_manners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every IPython kernel that is started from now on starts clusters as `mannered` does."""
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "manners.py").write_text(f"import kit.clusters.launcher\n\nkit.clusters.launcher.BOOT = {BOOT!r}\n")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))


def is_for_these_ranks(cell: dict[str, Any]) -> bool:
    return 'startswith("cuda")' not in "".join(cell["source"]) and not cell["id"].startswith("take-home")


@pytest.mark.usefixtures("kernels_with_manners")
@pytest.mark.parametrize("path", LABS, ids=lambda path: path.stem)
def test_solved(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the cells that are for a real GPU alone: here, CPU tensors play a device's part. And without the script
    to take home, whose processes know neither this cluster nor its manners.
    """
    whole = json.loads(path.read_text(encoding="utf-8"))
    whole["cells"] = [cell for cell in whole["cells"] if is_for_these_ranks(cell)]
    lab = tmp_path / path.name
    lab.write_text(json.dumps(whole), encoding="utf-8")
    notebook = run(lab, 3, tmp_path, monkeypatch, solutions=True)
    outputs = [str(output) for cell in notebook["cells"] for output in cell.get("outputs", [])]
    assert any("nccl" in text for text in outputs), "the lab ran on ranks of another kind"
    assert verdicts(tmp_path) == {"passed": exercises(path)}
