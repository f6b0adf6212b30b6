"""The examples on the page of the face run, one after the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.unit.test_face import EXAMPLES


def test_the_page_s_examples_run(tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text("\n\n".join(EXAMPLES) + "\ncluster.stop()\n", encoding="utf-8")
    ended = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "rank 1 finished without it" in ended.stdout and "not attempted" in ended.stdout
    assert {path.name for path in tmp_path.iterdir()} >= {"add_up.py", "walk.trace", "run.json"}
