"""The line a check leaves is the one `lockstep check` reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kit.grade.marks import FAILED, NOT_ATTEMPTED, PASSED, SIDE_FILE, UNCHECKED, Mark, collect, leave, without_ranks


@pytest.mark.parametrize("outcome", [PASSED, NOT_ATTEMPTED, FAILED])
def test_what_is_written_is_read(outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    side_file = tmp_path / "verdicts.jsonl"
    monkeypatch.setenv(SIDE_FILE, str(side_file))
    told = "rank 2 sent 96 bytes\nwhere 48 are enough: ½"
    ring = Mark("ring", outcome, told, 1.25, "traffic", "01_collectives", seed=7, worlds=(2, 3))
    tree = Mark("tree", PASSED, "", 0.5, no_ranks="no torch.")
    leave(ring)
    leave(tree)
    assert collect(side_file, ("ring",)) == (ring, tree)
    assert without_ranks([ring]) is None
    assert without_ranks([ring, tree]) == "no check could run, because there is no cluster here: no torch"


def test_nothing_is_written_for_a_person_at_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SIDE_FILE, raising=False)
    monkeypatch.chdir(tmp_path)
    leave(Mark("ring", PASSED, "", 1.0))
    assert list(tmp_path.iterdir()) == []


def line(exercise: str, outcome: str) -> str:
    return json.dumps({"exercise": exercise, "outcome": outcome, "sentence": "", "seconds": 0.5}) + "\n"


def test_last_mark_counts_and_a_missing_one_is_seen(tmp_path: Path) -> None:
    side_file = tmp_path / "verdicts.jsonl"
    side_file.write_text(line("ring", FAILED) + line("ring", PASSED) + line("ring", PASSED)[:20])
    found = [(mark.exercise, mark.outcome) for mark in collect(side_file, ("tree", "ring"))]
    assert found == [("tree", UNCHECKED), ("ring", PASSED)]


@pytest.mark.parametrize("junk", [b"\xff\xfe\n", b"[1]\n", b'{"exercise": 1}\n', b"[" * 100_000 + b"\n", b"null\n"])
def test_what_is_no_mark_costs_no_other(tmp_path: Path, junk: bytes) -> None:
    side_file = tmp_path / "verdicts.jsonl"
    side_file.write_bytes(junk + line("ring", PASSED).encode() + junk)
    assert [mark.outcome for mark in collect(side_file, ("ring",))] == [PASSED]


def test_marks_hold_nothing_that_a_page_cannot(tmp_path: Path) -> None:
    side_file = tmp_path / "verdicts.jsonl"
    wild = "\x1b[31mred\x1b[0m \ud800 \u202eturned\x07\nand a line"
    entry = {"exercise": "ring\nbob", "outcome": FAILED, "sentence": wild, "seconds": 1}
    side_file.write_text(json.dumps(entry) + "\n")
    (mark,) = collect(side_file)
    assert mark.exercise == "ring bob"
    assert mark.sentence == "red \\ud800  turned \nand a line"
    mark.sentence.encode()


def test_a_side_file_that_is_a_folder_is_said(tmp_path: Path) -> None:
    (mark,) = collect(tmp_path, ("ring",))
    assert mark.outcome == UNCHECKED and "cannot be read (Is a directory)" in mark.sentence


def test_no_side_file_means_no_check_ran(tmp_path: Path) -> None:
    (mark,) = collect(tmp_path / "none", ("ring",))
    assert (mark.outcome, mark.sentence) == (UNCHECKED, "the notebook did not check it")


def test_a_check_that_was_not_reached_says_so(tmp_path: Path) -> None:
    (mark,) = collect(tmp_path / "none", ("ring",), ended=False)
    assert (mark.outcome, mark.sentence) == (UNCHECKED, "the notebook stopped before its check had an answer")
