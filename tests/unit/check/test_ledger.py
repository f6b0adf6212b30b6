"""The line a check leaves is the one `lockstep check` reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.check import ledger
from kit.check.verdict import Status, Verdict
from kit.instructor.notebooks import Notebook
from kit.instructor.outcome import read_verdicts


@pytest.mark.parametrize("status", ["passed", "not attempted", "failed"])
def test_what_is_written_is_read(status: Status, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    side_file = tmp_path / "verdicts.jsonl"
    monkeypatch.setenv(ledger.ENVIRONMENT, str(side_file))
    sentence = "rank 2 sent 96 bytes\nwhere 48 are enough: ½"
    ledger.write(Verdict("ring", status, "traffic", sentence), "01_collectives", 1.25)
    ledger.write(Verdict("tree", "passed"), "01_collectives", 0.5)
    notebook = Notebook("x", Path("x.ipynb"), shipped=False, exercises=("ring",))
    ring, tree = read_verdicts(notebook, side_file)
    assert (ring.exercise, ring.outcome, ring.sentence, ring.seconds) == ("ring", status, sentence, 1.25)
    assert (tree.exercise, tree.outcome) == ("tree", "passed")


def test_nothing_is_written_for_a_person_at_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ledger.ENVIRONMENT, raising=False)
    monkeypatch.chdir(tmp_path)
    ledger.write(Verdict("ring", "passed"), "01_collectives", 1.0)
    assert list(tmp_path.iterdir()) == []
