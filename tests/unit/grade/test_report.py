"""What is expected of a notebook, and how it is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kit.grade import report
from kit.grade.marks import FAILED, NOT_ATTEMPTED, PASSED, UNCHECKED, Mark
from kit.grade.notebooks import Notebook
from kit.grade.report import Outcome
from kit.grade.run import why_it_stopped

STUBS = Notebook("01_collectives", Path("/labs/01_collectives.ipynb"), shipped=True, exercises=("ring",))
OWN = Notebook("ada", Path("/handed-in/ada.ipynb"), shipped=False, exercises=("ring",))


def outcome(
    notebook: Notebook, *outcomes: str, solutions: bool = False, stopped_by: str | None = None, left: int = 0
) -> Outcome:
    marks = tuple(Mark(f"e{n}", word, f"sentence {n}", 1.0) for n, word in enumerate(outcomes))
    return Outcome(notebook, marks, stopped_by, seconds=38.4, solutions=solutions, left=left)


@pytest.mark.parametrize(
    ("notebook", "solutions", "expected"),
    [
        (STUBS, False, {NOT_ATTEMPTED}),
        (STUBS, True, {PASSED}),
        (OWN, False, {PASSED, NOT_ATTEMPTED}),
        (OWN, True, {PASSED}),
    ],
    ids=["stubs", "stubs with solutions", "own", "own with solutions"],
)
@pytest.mark.parametrize("word", [PASSED, NOT_ATTEMPTED, FAILED, UNCHECKED])
def test_what_is_expected(notebook: Notebook, solutions: bool, expected: set[str], word: str) -> None:
    assert outcome(notebook, word, solutions=solutions).as_expected == (word in expected)


def test_a_notebook_that_stopped_is_never_as_expected() -> None:
    assert outcome(STUBS, NOT_ATTEMPTED).as_expected
    assert not outcome(STUBS, NOT_ATTEMPTED, stopped_by="the kernel died").as_expected


def test_table_lines_up() -> None:
    outcomes = [outcome(STUBS, NOT_ATTEMPTED, NOT_ATTEMPTED), outcome(OWN, PASSED, FAILED)]
    table = report.Table([STUBS, OWN])
    assert [table.head(), *map(table.row, outcomes)] == [
        "lab             passed  not attempted  failed  no check ran     time",
        "01_collectives       0              2       0             0     38 s",
        "ada                  1              0       1             0     38 s  not as expected",
    ]


def test_sentences_name_lab_exercise_and_reason() -> None:
    outcomes = [outcome(OWN, PASSED, FAILED), outcome(STUBS, UNCHECKED, stopped_by="the kernel died", left=2)]
    assert report.sentences(outcomes) == [
        "ada, e1: failed: sentence 1",
        "01_collectives: the kernel died.",
        "01_collectives: 2 processes outlived the notebook and were ended.",
        "2 of 2 notebooks not as expected.",
    ]
    assert report.sentences([outcome(STUBS, NOT_ATTEMPTED)]) == ["1 notebook, all as expected."]


def test_json_says_the_same() -> None:
    page = json.loads(
        report.as_json([outcome(STUBS, PASSED, solutions=True), outcome(OWN, FAILED, solutions=True)], "1.2", 3)
    )
    assert (page["lockstep"], page["ranks"], page["solutions"], page["as_expected"]) == ("1.2", 3, True, False)
    first, second = page["labs"]
    assert (first["lab"], first["passed"], first["failed"], first["as_expected"]) == ("01_collectives", 1, 0, True)
    told = {"exercise": "e0", "outcome": "failed", "sentence": "sentence 0", "seconds": 1.0, "stage": "", "seed": None}
    assert second["exercises"] == [told | {"worlds": []}]


@pytest.mark.parametrize(
    ("code", "log", "words"),
    [
        (0, "", None),
        (None, "", "still running after 60 s"),
        (1, "nbclient.exceptions.CellTimeoutError: A cell timed out", "a cell ran longer than 5 s"),
        (1, "nbclient.exceptions.DeadKernelError: Kernel died", "the kernel died"),
        (-9, "", "ended by signal 9"),
        (1, "Traceback\nValueError: no such kernel\n", "papermill stopped: ValueError: no such kernel"),
        (1, "", "without a word"),
    ],
)
def test_exit_code_decides_whether_a_notebook_ran(
    tmp_path: Path, code: int | None, log: str, words: str | None
) -> None:
    (tmp_path / "log").write_text(log)
    said = why_it_stopped(code, 60, 5, tmp_path / "executed.ipynb", tmp_path / "log")
    assert said is None if words is None else words in str(said)


def test_error_of_a_cell_is_quoted(tmp_path: Path) -> None:
    error = {"output_type": "error", "ename": "KeyError", "evalue": "\x1b[31m'x'\x1b[0m", "traceback": []}
    page = {"cells": [{"cell_type": "markdown"}, {"cell_type": "code", "execution_count": 7, "outputs": [error]}]}
    (tmp_path / "executed.ipynb").write_text(json.dumps(page))
    (tmp_path / "log").write_text("PapermillExecutionError")
    assert why_it_stopped(1, 60, 5, tmp_path / "executed.ipynb", tmp_path / "log") == "cell [7] raises KeyError: 'x'"


def test_a_notebook_cut_short_leaves_papermill_s_last_words(tmp_path: Path) -> None:
    """A full disk: what was saved of it ends in the middle of a text."""
    (tmp_path / "executed.ipynb").write_text('{"cells": [{"cell_type": "code", "outputs": [{"text": "xxxx')
    (tmp_path / "log").write_text("OSError: [Errno 28] No space left on device")
    said = why_it_stopped(1, 60, 5, tmp_path / "executed.ipynb", tmp_path / "log")
    assert said == "papermill stopped: OSError: [Errno 28] No space left on device"


def test_further_lines_of_a_sentence_are_no_lines_of_the_report() -> None:
    forged = Mark("ring", FAILED, "wrong\nbob, ring: passed: right", 1.0)
    (told, _) = report.sentences([Outcome(OWN, (forged,), None, 1.0, solutions=False)])
    assert told.splitlines() == ["ada, ring: failed: wrong", "    bob, ring: passed: right"]


def test_json_of_a_run_that_was_interrupted_is_not_as_expected() -> None:
    whole, part = (json.loads(report.as_json([outcome(OWN, PASSED)], "1", None, asked)) for asked in (1, 2))
    assert (whole["as_expected"], whole["notebooks"]) == (True, 1)
    assert (part["as_expected"], part["notebooks"], len(part["labs"])) == (False, 2, 1)
