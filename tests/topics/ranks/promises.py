"""What lab 00 tells its reader to look at is there to be seen."""

from __future__ import annotations

import re
from collections.abc import Callable

LONG = True  # it starts Python some ten times: untouched it is run on ranks in the full matrix alone


def solved(said: Callable[[str], str]) -> None:
    """At three ranks, with the solutions. said: what a cell put out, by its name."""
    assert len(set(re.findall(r"process (\d+)", said("see-hello-run")))) == 4
    assert re.findall(r"rank (\d) of 2, local rank", said("see-launcher-by-hand-run")) == ["0", "1"]
    assert re.findall(r"rank (\d) of 2, local rank", said("see-torchrun-run")) == ["0", "1"]
    assert re.findall(r"rank (\d): (\d+)", said("predict-memory-run")) == [
        ("0", "1"),
        ("1", "10"),
        ("2", "100"),
    ]
    assert "rank 0 waits in all_reduce" in said("step-alone-run")
    assert said("step-free-run").count("111.0") == 3
    assert "rank 2 steps too:  rank 0 held before line 8" in said("step-free-run")
    hang = said("break-hang-run")
    assert "Deadlock: ranks 0, 2 wait in all_reduce" in hang and "rank 1 finished without it" in hang
    assert "I am 2 of 3" in said("break-rescue-run")
    assert "Deadlock" in said("break-panel") and "Deadlock" in said("break-record-run")
    assert "the sum of all ranks: 111.0" in said("take-home-export")


def replayed(said: Callable[[str], str]) -> None:
    """From the recordings, which are of four ranks."""
    assert said("predict-memory-run").count("rank 3: 1000") == 1
    assert "rank 0 waits in all_reduce for ranks 1, 2 and 3" in said("step-alone-run")
    assert said("step-free-run").count("1111.0") == 4
    assert "rank 1 finished without it" in said("break-hang-run")
    assert "meet · stop 0 · recorded" in said("step-digits-panel")


def script(ranks: int) -> str:
    """A regular expression that is found in what the script to take home prints."""
    return "1" * ranks
