"""What lab 01a tells its reader to look at is there to be seen."""

from __future__ import annotations

import re
from collections.abc import Callable

LONG = False  # a long lab is run untouched, on ranks, in the full matrix alone


def solved(said: Callable[[str], str]) -> None:
    """At three ranks, with the solutions. said: what a cell put out, by its name."""
    assert "rank 2: [100, 100]" in said("see-scatter-run")
    assert said("see-all-reduce-run").count("[111, 111]") == 3
    assert "rank 1: [222, 222]" in said("see-reduce-scatter-run")
    assert "rank 1: [1, 11, 21]" in said("see-all-to-all-run")
    stood = [int(ms) for ms in re.findall(r"rank \d: (\d+)", said("see-barrier-run"))]
    assert all(stood[0] < late for late in stood[1:])
    assert "rank 0: 4.00 MB" in said("predict-root-run")
    halves = [re.findall(r"\d+", line)[1:] for line in said("step-half-run").strip().splitlines()]
    assert [chunks.count("111") for chunks in halves] == [1, 1, 1]
    assert [column.count("111") for column in zip(*halves, strict=True)] == [1, 1, 1]
    assert said("step-hold-run").count("waits in") == 2
    assert "1.33 x 1.33 x 1.33 x" in said("measure-ring-run")
    assert "Deadlock" in said("break-send-run")
    assert said("harder-start").strip() == "different by at most 0.0"


def replayed(said: Callable[[str], str]) -> None:
    """From the recordings, which are of four ranks."""
    assert said("see-all-reduce-run").count("[1111, 1111]") == 4
    assert "1.50 x 1.50 x 1.50 x 1.50 x" in said("measure-ring-run")
    assert said("step-hold-run").count("waits in") == 3
    assert "ring_all_reduce · stop 0 · recorded" in said("step-ring-panel")


def script(ranks: int) -> str:
    """A regular expression that is found in what the script to take home prints: both sums are the same."""
    return rf"ring: (\[{'1' * ranks}\.0, .*\]) torch: \1"
