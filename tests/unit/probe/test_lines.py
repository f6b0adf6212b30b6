"""The line tracer in one thread, without ranks."""

from __future__ import annotations

from types import FrameType
from typing import Any

import pytest

from kit.probe import blackbox
from kit.probe.code import Code
from kit.probe.lines import Lines, Motion

SOURCE = """\
def outer(x):
    y = helper(x)
    z = [v + 1 for v in (y, x)]
    w = max(
        y,
        x,
    )
    return w

def helper(x):
    x = x + 1
    return x
"""


def run(motions: list[Motion], source: str = SOURCE, name: str = "outer") -> list[tuple[str, int]]:
    """The (function, line) of every stop when the motions are given one after the other; the last one stays."""
    code = Code({"cell": tuple(source.splitlines())}, "cell")
    space: dict[str, Any] = {}
    exec(compile(source, "cell", "exec"), space)
    given = iter(motions)
    current = [next(given)]
    stops: list[tuple[str, int]] = []

    def at_stop(frame: FrameType) -> None:
        place = code.place_of(frame)
        stops.append((place.function, place.line))
        following = next(given, current[0])
        current[0] = Motion(following.how, following.line, following.file, tuple(code.stack(frame)))

    ended: list[str] = []
    box = blackbox.Blackbox(blackbox.create(1), 0)
    lines = Lines(code, box, lambda: current[0], at_stop, lambda frame: ended.append(frame.f_code.co_name))
    lines.start()
    try:
        space[name](1)
    finally:
        lines.stop()
    assert ended == [name]
    return stops


def test_step_visits_every_line_once_and_enters_the_learners_functions() -> None:
    assert run([Motion("step")]) == [
        ("outer", 2),
        ("helper", 11),
        ("helper", 12),
        ("outer", 3),
        ("outer", 4),
        ("outer", 8),
    ]


def test_over_stays_in_the_function() -> None:
    assert run([Motion("step"), Motion("over")]) == [("outer", 2), ("outer", 3), ("outer", 4), ("outer", 8)]


def test_out_returns_to_the_caller() -> None:
    assert run([Motion("step"), Motion("into"), Motion("out"), Motion("finish")]) == [
        ("outer", 2),
        ("helper", 11),
        ("outer", 3),
    ]


def test_to_line_finds_the_first_line_of_a_call_over_many() -> None:
    assert run([Motion("to_line", line=4), Motion("finish")]) == [("outer", 4)]


def test_finish_stops_nowhere() -> None:
    assert run([Motion("finish")]) == []


def test_a_loop_stops_at_its_line_each_time() -> None:
    source = "def outer(x):\n    for i in range(2):\n        x = x + i\n    return x\n"
    assert [line for _, line in run([Motion("step")], source)] == [2, 3, 2, 3, 2, 4]


@pytest.mark.parametrize("how", ["step", "over", "into", "finish"])
def test_an_error_leaves_no_tracer_behind(how: Any) -> None:
    source = "def outer(x):\n    raise ValueError\n"
    with pytest.raises((ValueError, AssertionError)):
        run([Motion(how)], source)
    import sys

    assert sys.gettrace() is None or "coverage" in repr(sys.gettrace())


def test_foreign_files_are_not_entered() -> None:
    source = "import json\ndef outer(x):\n    y = json.dumps([x])\n    return y\n"
    assert run([Motion("into")], source) == [("outer", 3), ("outer", 4)]
