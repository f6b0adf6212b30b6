"""A lab that `lockstep new` begins: in a folder of its own, and in a checkout beside the others."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from kit import resources
from kit.run.recordings import index
from tests import staleness
from tests.labs.test_labs import run, said, verdicts
from tests.labs.test_without_cluster import SENTENCE, few_files

ROOT = Path(__file__).parents[2]


def lockstep(folder: Path, *arguments: str, code: int = 0) -> str:
    """What the command says, in `folder`."""
    done = subprocess.run(
        [sys.executable, "-m", "kit.cli", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def my_labs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("somewhere")
    written = lockstep(folder, "new", "99_sample", "--into", "my_labs").splitlines()
    assert {"my_labs/99_sample.ipynb", "my_labs/topics/sample/exercises.py"} < set(written)
    return folder / "my_labs"


def test_its_exercises_hints_and_solutions_are_there(my_labs: Path) -> None:
    program = (
        "import kit\n@kit.exercise('sample-mean')\ndef mine(x): ...\n"
        "print(kit.hint('sample-mean'), kit.solution('sample-mean'))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=my_labs, capture_output=True, text=True, check=True)
    assert "Which collective brings it together?" in done.stdout
    assert "def mean_over_ranks(x, group=None):" in done.stdout


def test_it_is_checked_from_anywhere(my_labs: Path, tmp_path: Path) -> None:
    told = lockstep(tmp_path, "check", str(my_labs), "--solutions")
    (row,) = [line for line in told.splitlines() if line.startswith("99_sample")]
    assert row.split()[1:4] == ["1", "0", "0"] and "1 notebook, all as expected." in told


def test_its_mistakes_are_tried_and_those_without_their_sentence_are_named(my_labs: Path, tmp_path: Path) -> None:
    labs = shutil.copytree(my_labs, tmp_path / "labs")
    exercises = labs / "topics" / "sample" / "exercises.py"
    exercises.write_text(exercises.read_text().replace('("was not divided",)', '("was not halved",)'))
    told = lockstep(tmp_path, "check", "--mistakes", "labs/99_sample.ipynb", code=1)
    assert "99_sample, sample-mean: 2 of 3 usual mistakes get their own sentence" in told
    assert "sum, not mean: 'was not halved' is not in the sentence" in told


def test_it_is_recorded_and_shown_without_a_cluster(
    my_labs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lockstep(tmp_path, "record", str(my_labs)).startswith("99_sample: 6 files")
    monkeypatch.setenv(resources.OWN_LABS, str(my_labs))
    traces = index.load("99_sample")
    assert traces.folder == my_labs / "traces" / "99_sample"
    files = {source.file for entry in traces.entries for trace in traces.traces(entry) for source in trace.sources}
    assert "kit/topics/sample/reference.py" in files and not any(str(my_labs) in file for file in files)
    assert staleness.complaints(my_labs / "99_sample.ipynb") == []
    why = few_files(tmp_path, monkeypatch)
    notebook = run(my_labs / "99_sample.ipynb", 4, tmp_path, monkeypatch, solutions=False)
    assert verdicts(tmp_path) == {"not attempted": 1}
    for entry in traces.entries:
        assert re.search(SENTENCE, said(notebook, entry.cell)) and why in said(notebook, entry.cell)
    assert said(notebook, "predict-mean-run").count("[1.5, 1.5]") == 4
    assert said(notebook, "measure-bytes-run").startswith("4000 bytes put in")


def test_in_a_checkout_it_edits_no_file_and_passes(tmp_path: Path) -> None:
    """As a commit would show it: new files only; what tests ask of every lab, and its own tests, pass."""
    here = tmp_path / "checkout"
    for name in ("kit", "labs", "tests", "assets", "pyproject.toml"):
        source = ROOT / name
        skip = shutil.ignore_patterns("__pycache__", *(["traces"] if name == "assets" else []))  # the recordings
        shutil.copytree(source, here / name, ignore=skip) if source.is_dir() else shutil.copy(source, here / name)
    git = partial(subprocess.run, cwd=here, capture_output=True, text=True, check=True)
    git(["git", "init", "-q"])
    git(["git", "add", "-A"])
    git(["git", "-c", "user.name=author", "-c", "user.email=author@example.org", "commit", "-qm", "before"])
    environment = {**os.environ, "PYTHONPATH": str(here)}
    new = [sys.executable, "-m", "kit.cli", "new", "98a_specimen"]
    written = git(new, env=environment).stdout.split()
    changed = git(["git", "status", "--porcelain", "--untracked-files=all"]).stdout.splitlines()
    assert sorted(changed) == sorted(f"?? {path}" for path in written)
    assert {Path(path).parts[0] for path in written} == {"kit", "labs", "tests"}
    tests = [
        "tests/labs/test_form.py",
        "tests/topics/specimen",
        "tests/unit/grade",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, "-k", "specimen or discover or every"],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
