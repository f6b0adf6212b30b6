"""Training steps, from passes written down by hand."""

from __future__ import annotations

import pytest

from kit.trace.facts import Pass
from kit.trace.timeline import steps, the_step


def passes(program: str) -> list[Pass]:
    """'fbs' is a forward pass, a backward pass and an optimizer's step of 10 ns each, with 2 ns between them."""
    names = {"f": "forward", "b": "backward", "s": "step"}
    return [Pass(names[letter], 12 * i, 12 * i + 10) for i, letter in enumerate(program)]


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("", []),
        ("f", []),
        ("fbs", [(0, 34)]),
        ("fbsfbs", [(0, 34), (36, 70)]),
        ("fbfbs", [(0, 58)]),  # two micro-batches
        ("fbss", [(0, 34)]),  # a second optimizer belongs to no further step
        ("ffbs", [(0, 46)]),
        ("fbsf", [(0, 34)]),  # an evaluation at the end
        ("fb", [(0, 22)]),
        ("fbfb", [(0, 22), (24, 46)]),
        ("fffb", [(0, 46)]),
        ("bs", []),
    ],
)
def test_steps(program: str, found: list[tuple[int, int]]) -> None:
    assert steps(passes(program)) == found


def test_one_of_them() -> None:
    assert the_step(passes("fbsfbs"), -1, 0) == (36, 70)
    with pytest.raises(ValueError, match="no training step 2 on rank 1: the run has 2, counted from 0"):
        the_step(passes("fbsfbs"), 2, 1)
    with pytest.raises(ValueError, match="none: no module was called"):
        the_step([], 0, 0)
