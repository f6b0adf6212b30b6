"""Answers are taken out of notebooks as text, with all they need and nothing run."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.classroom.dormant import dormant, forget
from kit.classroom.handins import LARGEST_FILE, Answer, HandIn, Unreadable, answers_in, cells_of
from kit.grade import discovery, reading
from tests.classroom.notebooks import notebook, write

LAB = discovery.labs()["00_ranks"]  # its exercises: who-am-i, rank-zero-speaks, first-rescue


def answer_of(path: Path, *cells: str) -> Answer:
    """What these cells answer to who-am-i."""
    return answers_in(write(path / "handed in.ipynb", *cells), LAB)[0]


def called(answer: Answer, *arguments: Any) -> Any:
    """What the text says, run here: it is this file's."""
    assert answer.problem == ""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(answer.source, answer.file, "exec", dont_inherit=True), names)
    return names[answer.function](*arguments)


MARK = '@exercise("who-am-i")\n'
FOUND = {  # what a cell may look like: (cells, what the function gives for 5)
    "a helper, of a helper in a later cell": (
        [f"{MARK}def f(n):\n    return half(n)", "def half(n):\n    return less(n) // 2", "def less(n): return n - 1"],
        2,
    ),
    "constants, one of another": (["A = 2\nB = A * 3\nC = B + 1", f"{MARK}def f(n): return n + C"], 12),
    "an import under another name": (["import math as m, os", f"{MARK}def f(n): return m.factorial(n)"], 120),
    "an import of a package and of a part of it": (
        ["import os", "import os.path, json", f"{MARK}def f(n): return os.path.basename('a/b') + os.sep"],
        "b/",
    ),
    "names of kit": (
        ["from kit import NotAttempted, check, solution", f"{MARK}def f(n): return NotAttempted.__name__"],
        "NotAttempted",
    ),
    "a mark through kit": (["import kit", '@kit.exercise("who-am-i")\ndef f(n): return n'], 5),
    "a mark over several lines, above another decorator": (
        ["import functools", '@exercise(\n    "who-am-i"\n)\n@functools.lru_cache(maxsize=None)\ndef f(n): return n'],
        5,
    ),
    "the last of several": ([f"{MARK}def f(n): return 1", f"{MARK}def g(n): return 2", "def g(n): return 3"], 2),
    "a helper of which the last counts": (
        ["def h(n): return 1", f"{MARK}def f(n): return h(n)", "def h(n): return 2"],
        2,
    ),
    "a constant of which the value at its place counts": (
        ["A = 1", "B = A", "A = 2", f"{MARK}def f(n): return [A, B]"],
        [2, 1],
    ),
    "a constant that grows": (["A = 1\nA += 1", "A = A + 1", f"{MARK}def f(n): return A"], 3),
    "a table that is filled": (
        ["T = {}", "for i in range(3):\n    T[i] = i * i", "T.update({9: 9})", f"{MARK}def f(n): return T"],
        {0: 0, 1: 1, 2: 4, 9: 9},
    ),
    "a table that is filled line by line": (
        ["T = []\n" + "T.append(0)\n" * 2_000, f"{MARK}def f(n): return len(T)"],
        2_000,
    ),
    "mutual recursion": (
        [f"{MARK}def f(n): return n == 0 or g(n - 1)", "def g(n): return n != 0 and f(n - 1)"],
        False,
    ),
    "a star import": (["from math import *", f"{MARK}def f(n): return floor(sqrt(n))"], 2),
    "a function under an if": (["if True:\n    " + MARK + "    def f(n):\n        return n"], 5),
    "a function under an if of which nothing is known": (
        ["import kit\nran = kit.record(print)", "if ran:\n    " + MARK + "    def f(n):\n        return n"],
        5,
    ),
    "a helper that is there either way": (
        ["try:\n    from no_such_module import h\nexcept ImportError:\n    h = abs", f"{MARK}def f(n): return h(-n)"],
        5,
    ),
    "a class with a base": (
        ["class A:\n    x = 4", "class B(A): pass", f"{MARK}def f(n): return B().x"],
        4,
    ),
    "cells that do not parse": (["def (", "A = 3", f"{MARK}def f(n): return A", "]" * 9], 3),
    "a cell that is nested too deeply": (["(" * 5000 + ")" * 5000, f"{MARK}def f(n): return n"], 5),
    "half of a character": (["A = '\\ud800'", f"{MARK}def f(n): return len(A)"], 1),
    "magics and lines for the shell": (
        ["!pip install torch\n%matplotlib inline\nA = 2", f"%%time\n{MARK}def f(n): return A", "%%bash\nrm -rf ~"],
        2,
    ),
    "a value that only the shell has is passed over": (["A = 1", "A = !ls", f"{MARK}def f(n): return A"], 1),
    "a value that only a cluster has is passed over": (
        ["import kit", "ranks = 4", "c = kit.cluster()\nranks = c.size", f"{MARK}def f(n): return ranks"],
        4,
    ),
    "what stands beside it on a line": ([f"A = 1; B = 2\n{MARK}def f(n): return B"], 2),
    "annotations of names that come later": (
        ["from __future__ import annotations", f"{MARK}def f(n: Late) -> Late: return n"],
        5,
    ),
    "a default that is computed": (["A = 3", f"{MARK}def f(n, k=A * 2): return k"], 6),
    "the lab's own cells, where they were taken out": (
        [f"{MARK}def f(n): return torch.tensor(n).item() + dist.is_initialized()"],
        5,
    ),
    "the learner's, where the lab's were changed": (["dist = 7", f"{MARK}def f(n): return dist"], 7),
}


@pytest.mark.parametrize(("cells", "right"), FOUND.values(), ids=FOUND)
def test_an_answer_is_taken_out_with_all_it_needs(tmp_path: Path, cells: list[str], right: Any) -> None:
    assert called(answer_of(tmp_path, *cells), 5) == right


def test_nothing_is_taken_that_is_not_needed(tmp_path: Path) -> None:
    cells = ["import os, math", "SECRET = 1\nopen('x', 'w')", f"# mine\n{MARK}def f(n):\n    # why\n    return math.pi"]
    source = answer_of(tmp_path, *cells).source
    assert source == "import math\n\n\ndef f(n):\n    # why\n    return math.pi\n"


def test_reading_runs_nothing(tmp_path: Path) -> None:
    bomb = f"open({str(tmp_path / 'ran')!r}, 'w')"
    cells = [f"A = {bomb}", f"{MARK}def f(n, k={bomb}): return A", f"{bomb}\n!touch {tmp_path / 'ran'}"]
    found = answer_of(tmp_path, *cells)
    assert bomb in found.source
    assert list(inspect.signature(dormant(found)).parameters) == ["n", "k"]
    assert not (tmp_path / "ran").exists()


PROBLEMS = {
    "an async function": (f"{MARK}async def f(n): return n", "async function"),
    "a generator": (f"{MARK}def f(n): yield n", "generator"),
    "text that does not compile": (f"{MARK}def f(n):\n    continue", "compile"),
    "text that does not parse": (f"{MARK}def f(n) return n", "code cell 1 does not parse (line 2"),
    "a file instead of a cell": (f"%%writefile f.py\n{MARK}def f(n): return n", "begins with %%writefile"),
    "Lockstep's own": (
        "from kit.topics.collectives import ring_all_reduce as ring\n" + MARK + "def f(n): return ring(n)",
        "calls Lockstep's own ring_all_reduce",
    ),
    "nothing": ("A = 1", 'no function marked @exercise("who-am-i")'),
}


@pytest.mark.parametrize(("cell", "words"), PROBLEMS.values(), ids=PROBLEMS)
def test_what_cannot_be_run_is_told(tmp_path: Path, cell: str, words: str) -> None:
    other = '@exercise("first-rescue")\ndef g(mine): return 1'
    path = write(tmp_path / "a.ipynb", cell, other)
    wrong, _, right = answers_in(path, LAB)
    assert words in wrong.problem
    assert right.problem == "" and called(right, []) == 1
    if "cell" in words or "writefile" in words:
        assert HandIn(path).troubles == (f"{wrong.problem}: it was left out",)
    with pytest.raises(ValueError, match="f|compile|notebook|cell"):
        dormant(wrong)


def made(make: Callable[[Path], object]) -> Callable[[Path], Path]:
    def file(folder: Path) -> Path:
        make(folder / "a.ipynb")
        return folder / "a.ipynb"

    return file


def _far_too_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(LARGEST_FILE + 1)


def _a_link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


UNREADABLE = {
    "a folder": (made(lambda path: path.mkdir()), "a folder"),
    "empty": (made(lambda path: path.touch()), "an empty file"),
    "no JSON": (made(lambda path: path.write_text("import torch")), "no JSON (line 1"),
    "JSON that is no notebook": (made(lambda path: path.write_text('["cells"]')), "JSON without cells"),
    "cells that are none": (made(lambda path: path.write_text('{"cells": [1]}')), "JSON without cells"),
    "brackets without end": (made(lambda path: path.write_text("[" * 200_000)), "nested too deeply"),
    "not UTF-8": (made(lambda path: path.write_bytes(notebook("A = 'ä'").encode("utf-16"))), "not text in UTF-8"),
    "a link": (made(_a_link), "a link"),
    "a pipe": (made(lambda path: os.mkfifo(path)), "no plain file"),
    "too large": (made(_far_too_large), "256 MB"),
    "too many statements": (made(lambda path: path.write_text(notebook("A = 1\n" * 5_001))), "5,000 statements"),
    "too much code": (made(lambda path: path.write_text(notebook("A = 1\n" * 400_000))), "2 million characters"),
}


@pytest.mark.parametrize(("file", "words"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_file_that_is_no_notebook_is_told(tmp_path: Path, file: Callable[[Path], Path], words: str) -> None:
    with pytest.raises(Unreadable, match=words.replace("(", r"\(")):
        HandIn(file(tmp_path))


def test_notebooks_of_an_older_format_are_read(tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "input": [f"{MARK}def f(n):\n", "    return 7"]}, {"cell_type": "heading"}]
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"nbformat": 3, "worksheets": [{"cells": cells}]}), encoding="utf-8-sig")
    assert called(answers_in(path, LAB)[0], 5) == 7


def test_a_name_that_is_not_utf_8_is_no_hindrance(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.ipynb"))
    path.write_text(notebook(f"{MARK}def f(n): return n"))
    assert called(answers_in(path, LAB)[0], 5) == 5


def test_whose_lab_it_is_shows_in_its_exercises(tmp_path: Path) -> None:
    ring = '@exercise("ring-all-reduce")\ndef ring(x): return x'
    assert [lab.name for lab in HandIn(write(tmp_path / "a.ipynb", ring)).labs("04_zero")] == ["01a_collectives"]
    assert [lab.name for lab in HandIn(write(tmp_path / "a.ipynb", "A = 1")).labs("ada 04_zero")] == ["04_zero"]
    assert HandIn(write(tmp_path / "a.ipynb", "A = 1")).labs("homework") == ()


def test_answers_are_equal_whatever_their_comments(tmp_path: Path) -> None:
    plain = answer_of(tmp_path, f"{MARK}def f(n):\n    return n + 1")
    beside = answer_of(tmp_path, f"{MARK}def f(n):\n    return (n+1)  # so it is")
    below = answer_of(tmp_path, f'{MARK}def f(n):\n    """Why not."""\n\n    return n + 1')
    other = answer_of(tmp_path, f"{MARK}def f(n):\n    return 1 + n")
    assert plain.digest == beside.digest == below.digest != other.digest
    assert plain.layout == beside.layout != below.layout


@pytest.mark.parametrize("lab", discovery.labs().values(), ids=discovery.labs())
def test_a_lab_as_shipped_is_untouched(lab: discovery.Lab) -> None:
    found = answers_in(lab.notebook, lab)
    assert [answer.exercise for answer in found] == [exercise.id for exercise in lab.exercises]
    for answer, exercise in zip(found, lab.exercises, strict=True):
        assert (answer.problem, answer.untouched, answer.function) == ("", True, exercise.function)


def test_a_dormant_function_can_be_read(tmp_path: Path) -> None:
    text = "def f(n, *, group=None, k=3):\n    dist.recv(n)\n    return ranks"
    found = answer_of(tmp_path, "ranks = 4", f"{MARK}{text}")
    function = dormant(found)
    assert str(inspect.signature(function)) == "(n, *, group=None, k=3)"
    assert inspect.getsource(function).strip() == text
    assert reading.remark(function).startswith("`ranks` is a variable of the notebook, 4 on every rank")
    assert function.__code__.co_filename == found.file
    forget(found)


def test_cells_are_those_of_the_notebook() -> None:
    assert any("@exercise" in cell for cell in cells_of(LAB.notebook))
