"""Which line a rank can stop before, for a line that a person points at."""

from __future__ import annotations

import pytest

from kit.run.targets import line_to_stop_at

TEXT = '''import torch

LIMIT = 3


def first(x):
    """What it does."""
    # a comment
    y = combine(
        x,
        LIMIT,
    )

    if y:
        return y
    def inner():
        return x
    return inner


class Second:
    size = 4

    def method(self):
        return [n
                for n in range(3)]


DONE = True
'''.splitlines()


@pytest.mark.parametrize(
    ("asked", "reached"),
    [
        (1, 9),  # what a module does when it is imported is not done on ranks
        (6, 9),
        (8, 9),
        (11, 9),  # inside a statement: where it begins
        (13, 14),
        (15, 15),
        (16, 16),  # the def of an inner function is run
        (21, 25),
        (26, 25),
    ],
)
def test_the_next_line_that_is_run_inside_a_function(asked: int, reached: int) -> None:
    assert line_to_stop_at(asked, TEXT, "text") == reached


def test_nothing_follows() -> None:
    with pytest.raises(ValueError, match="no code of a function follows line 29 of your cell: the last is line 25"):
        line_to_stop_at(29, TEXT, "your cell")


@pytest.mark.parametrize("line", [0, 30, "3", 2.5])
def test_outside_the_text(line: object) -> None:
    with pytest.raises(ValueError, match="text has lines 1 to 29"):
        line_to_stop_at(line, TEXT, "text")  # type: ignore[arg-type]


def test_a_cell_with_magics_or_without_source_is_taken_at_its_word() -> None:
    assert line_to_stop_at(2, ["%%time", "", "x = 1"], "cell") == 2
    assert line_to_stop_at(7, [], "cell") == 7


def test_a_lambda_stands_on_its_own_line() -> None:
    assert line_to_stop_at(1, ["double = lambda x: x * 2"], "text") == 1
