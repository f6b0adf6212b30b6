"""`lockstep check` on small notebooks: exit codes, limits, and nothing left running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kit.grade import run
from kit.grade.notebooks import find
from tests.ranks.living import alive, until
from tests.unit.grade.notebooks import saying, verdict, write

STUB = "def exercise(name):\n    return lambda function: function\n\n\n@exercise('ring')\ndef ring():\n    pass"
# a kernel that starts a process which would outlive it, says its id, and hangs
HANG = (
    "import os, subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'], start_new_session=True)\n"
    "open({path!r}, 'w').write(f'{{os.getpid()}} {{child.pid}} ')\n"
    "while True: time.sleep(0.1)"
)


def check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kit.cli", "check", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def started(pids: Path) -> list[int]:
    """The kernel of a notebook that hangs and the process that it started, as soon as it has told."""
    return [int(pid) for pid in pids.read_text().split()] if pids.exists() else []


def test_passed_and_failed_notebooks_side_by_side(tmp_path: Path) -> None:
    write(tmp_path / "ada.ipynb", STUB, saying(verdict("ring", "passed", "right")))
    write(tmp_path / "bob.ipynb", STUB, saying(verdict("ring", "failed", "rank 2 sent 96 bytes where 48 are enough")))
    ended = check(tmp_path, "ada.ipynb", "bob.ipynb", "--json", "out/marks.json", "--keep", "ran")
    assert ended.returncode == 1, ended.stderr
    assert "bob, ring: failed: rank 2 sent 96 bytes where 48 are enough" in ended.stdout
    assert "1 of 2 notebooks not as expected." in ended.stdout
    marks = json.loads((tmp_path / "out" / "marks.json").read_text())
    assert [(lab["lab"], lab["as_expected"]) for lab in marks["labs"]] == [("ada", True), ("bob", False)]
    assert sorted(path.name for path in (tmp_path / "ran").iterdir()) == ["ada.ipynb", "bob.ipynb"]
    assert check(tmp_path, "ada.ipynb").returncode == 0


def test_one_hand_in_of_whatever_kind_costs_no_other_its_verdict(tmp_path: Path) -> None:
    """A name that is not UTF-8, a file for verdicts that is made a folder, bytes and halves of characters in it."""
    right = saying(verdict("ring", "passed", "right"))
    made = "import os\nside = os.environ['LOCKSTEP_VERDICTS']\n"
    write(tmp_path / os.fsdecode(b"ad\xe4.ipynb"), STUB, right)
    write(tmp_path / "bob.ipynb", STUB, f"{made}os.mkdir(side)")
    write(tmp_path / "cy.ipynb", STUB, right, f"{made}open(side, 'ab').write(b'\\xff\\xfe')")
    write(tmp_path / "di.ipynb", STUB, right, "raise ValueError('\\ud800 \\x1b[2J')")
    (tmp_path / "ed.ipynb").write_bytes(b"\xff\xfe no notebook")
    ended = check(tmp_path, ".", "--json", "marks.json")
    assert ended.returncode == 1, ended.stderr
    page = json.loads((tmp_path / "marks.json").read_text(encoding="utf-8"))
    labs = {lab["lab"]: lab for lab in page["labs"]}
    assert {name: lab["passed"] for name, lab in labs.items()} == {"ad\\udce4": 1, "bob": 0, "cy": 1, "di": 1, "ed": 0}
    assert "the file with the verdicts cannot be read" in labs["bob"]["exercises"][0]["sentence"]
    assert "In [3]" in labs["di"]["trouble"]
    assert "not a notebook that can be read" in labs["ed"]["trouble"]


def test_solutions_and_ranks_reach_the_notebook(tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    tell = f"import json, os\njson.dump([os.environ.get('LOCKSTEP_SOLUTIONS'), ranks], open({str(told)!r}, 'w'))"
    write(tmp_path / "x.ipynb", "ranks = 4", tell)
    assert check(tmp_path, "x.ipynb", "--solutions", "--ranks", "3").returncode == 0
    assert json.loads(told.read_text())[0] == "1"
    assert check(tmp_path, "x.ipynb").returncode == 0
    assert json.loads(told.read_text()) == [None, 4]


def test_a_cell_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    write(tmp_path / "hang.ipynb", saying(verdict("before", "passed")), HANG.format(path=str(pids)))
    ended = check(tmp_path, "hang.ipynb", "--cell-limit", "10", "--json", "marks.json")
    assert ended.returncode == 1, ended.stderr
    assert "a cell ran longer than 10 s" in ended.stdout
    (lab,) = json.loads((tmp_path / "marks.json").read_text())["labs"]
    assert (lab["passed"], lab["as_expected"]) == (1, False)  # what was said before it hung is kept
    assert len(started(pids)) == 2 and alive(started(pids)) == []


def test_a_lab_that_hangs_is_ended_with_all_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = tmp_path / "pids"
    write(tmp_path / "hang.ipynb", saying(verdict("before", "passed")), HANG.format(path=str(pids)))

    def limit_comes_once_it_hangs(process: subprocess.Popen[bytes], limit: float, mark: str) -> int | None:
        assert until(lambda: len(started(pids)) == 2)
        return wait(process, 0.1, mark)

    wait = run._wait
    monkeypatch.setattr(run, "_wait", limit_comes_once_it_hangs)
    (outcome,) = run.run_all(find(["hang.ipynb"], tmp_path), run.Settings(lab_limit=8.0))
    assert "the notebook was still running after 8 s" in str(outcome.trouble)
    assert [mark.outcome for mark in outcome.marks] == ["passed"]
    assert alive(started(pids)) == []


def test_a_lab_limit_is_said(tmp_path: Path) -> None:
    write(tmp_path / "hang.ipynb", "while True: pass")
    ended = check(tmp_path, "hang.ipynb", "--lab-limit", "1")
    assert ended.returncode == 1, ended.stderr
    assert "the notebook was still running after 1 s" in ended.stdout


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("raise KeyError('x')", "raises KeyError: 'x'"),
        ("import os; os._exit(3)", "the kernel died"),
        ("input()", "raises"),
    ],
)
def test_notebook_that_stops_is_a_failure(tmp_path: Path, cell: str, words: str) -> None:
    write(tmp_path / "x.ipynb", "1", cell)
    ended = check(tmp_path, "x.ipynb")
    assert ended.returncode == 1
    assert words in ended.stdout


def test_interrupted_check_ends_what_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    write(tmp_path / "hang.ipynb", HANG.format(path=str(pids)))
    running = subprocess.Popen(
        [sys.executable, "-m", "kit.cli", "check", "hang.ipynb"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    assert until(lambda: len(started(pids)) == 2 or running.poll() is not None)
    os.kill(running.pid, signal.SIGTERM)
    _, said = running.communicate()
    assert running.returncode == 130
    assert "interrupted" in said
    assert alive(started(pids)) == []
