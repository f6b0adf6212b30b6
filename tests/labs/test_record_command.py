"""`lockstep record` on a lab of its own: recordings without a line of code for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kit.run.recordings import index
from tests import staleness
from tests.unit.grade.notebooks import write

SET_UP = "import kit\nimport torch\nimport torch.distributed as dist\n\ncluster = kit.cluster(ranks=2, device='cpu')"
MEET = (
    "def meet(x):\n    dist.all_reduce(x)\n    return x\n\n\nsession = kit.step(meet, torch.ones(2))\nsession.finish()"
)


def record(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kit.cli", "record", "--into", "traces", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_a_new_lab_is_recorded_and_stale_when_it_changes(tmp_path: Path) -> None:
    lab = write(tmp_path / "08_small.ipynb", SET_UP, MEET, "kit.record(meet, torch.ones(3))")
    ended = record(tmp_path, "08_small.ipynb")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.startswith("08_small: 3 files, ")
    found = index.load("08_small", tmp_path / "traces")
    assert [(entry.mode, entry.function) for entry in found.entries] == [("step", "meet"), ("record", "meet")]
    assert staleness.complaints(lab, tmp_path / "traces") == []
    write(lab, SET_UP, MEET.replace("finish", "step"), "kit.record(meet, torch.ones(3))")
    told = staleness.complaints(lab, tmp_path / "traces")
    assert len(told) == 2 and all("`lockstep record 08` records it anew" in sentence for sentence in told)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (("import kit", "kit.step(nobody)"), "08_small: not recorded: cell [3] raises NameError"),
        (("1 + 1",), "08_small has had no ranks to record"),
    ],
    ids=["fails", "no-ranks"],
)
def test_what_fails_leaves_the_old_recordings(tmp_path: Path, cells: tuple[str, ...], words: str) -> None:
    write(tmp_path / "08_small.ipynb", *cells)
    old = tmp_path / "traces" / "08_small" / "old.trace"
    old.parent.mkdir(parents=True)
    old.write_text("old")
    ended = record(tmp_path, "08_small.ipynb")
    assert ended.returncode == 1 and words in ended.stdout
    assert [path.name for path in old.parent.iterdir()] == ["old.trace"]
