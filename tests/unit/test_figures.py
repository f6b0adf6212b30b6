"""The table of the benchmarks: what is within its gate, what a reader sees, what a file keeps."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.benchmarks import __main__ as whole
from tests.benchmarks.figures import Figure, markdown, read, table, tell

FAST = Figure("start", 0.254, "×", 0.35, spread=(0.24, 0.301), beside="plain, 12.2 s")
SLOW = Figure("training", 0.9, "×", 0.95, "at least")


def test_a_gate_is_the_most_or_the_least() -> None:
    assert FAST.within and not SLOW.within
    assert Figure("start", 0.36, "×", 0.35).within is False
    assert Figure("training", 0.97, "×", 0.95, "at least").within
    assert Figure("told only", 1e9, "s").within


def test_what_a_reader_sees() -> None:
    first, second = table([FAST, SLOW]).splitlines()
    assert first.startswith("start     0.254 × (0.24 to 0.301)  at most 0.35 ×") and "OUTSIDE" not in first
    assert second.endswith("at least 0.95 ×  OUTSIDE")
    assert "| start | 0.254 × (0.24 to 0.301) | at most 0.35 × | plain, 12.2 s | `bench_cluster` |" in markdown(
        [("bench_cluster", FAST)]
    )
    assert "(**missed**)" in markdown([("bench_ddp", SLOW)])


def test_a_file_keeps_them_and_the_status_tells(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        tell([FAST, SLOW], tmp_path / "figures.json")
    assert ended.value.code == 1
    assert read(tmp_path / "figures.json") == [FAST, SLOW]
    assert json.loads((tmp_path / "figures.json").read_text())[0] == {**asdict(FAST), "spread": [0.24, 0.301]}


def test_the_readme_has_a_place_for_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "README.md"
    copy.write_text(whole.README.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(whole, "README", copy)
    whole.into_readme([("bench_cluster", FAST)], "two cores")
    text = copy.read_text(encoding="utf-8")
    assert "on: two cores.\n\n| what" in text and "0.254 × (0.24 to 0.301)" in text
    assert len(text.split("<!-- figures:")) == len(text.split("<!-- end of figures -->")) == 2
