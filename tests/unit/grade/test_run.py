"""The processes of a run are found by the mark they inherited, and only they are ended."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kit.grade.marks import SIDE_FILE
from kit.grade.run import end, of_run, wait_gone

SLEEP = "import time; time.sleep(60)"
ORPHAN = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True)"


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", SLEEP], env={SIDE_FILE: "another run"})
    yield process
    process.kill()
    process.wait()


def test_orphans_are_found_and_ended_and_bystanders_left(bystander: subprocess.Popen[bytes], tmp_path: Path) -> None:
    mark = str(tmp_path / "verdicts.jsonl")
    subprocess.run([sys.executable, "-c", ORPHAN], env={SIDE_FILE: mark}, check=True)
    (orphan,) = of_run(mark)
    assert end(mark) == 1
    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE
    assert of_run(mark) == []
    assert bystander.poll() is None


def test_wait_gone_returns_who_stayed(tmp_path: Path) -> None:
    mark = str(tmp_path)
    assert wait_gone(mark, 5.0) == []
    process = subprocess.Popen([sys.executable, "-c", SLEEP], env={SIDE_FILE: mark})
    try:
        while not of_run(mark):  # a process is there a moment before its environment is
            assert process.poll() is None
        assert [left.pid for left in wait_gone(mark, 0.2)] == [process.pid]
    finally:
        process.kill()
        process.wait()
