"""What lab 00 tells its reader to look at is there to be seen."""

from __future__ import annotations

from collections.abc import Callable

LONG = False  # a long lab is run untouched, on ranks, in the full matrix alone


def solved(said: Callable[[str], str]) -> None:
    """At three ranks, with the solutions. said: what a cell put out, by its name."""
    assert said("predict-mean-run").count("[1.0, 1.0]") == 3
    assert "rank 0 waits in all_reduce" in said("step-alone-run")
    assert "rank 1 finished without it" in said("break-leave-run")


def replayed(said: Callable[[str], str]) -> None:
    """From the recordings, which are of four ranks."""
    assert said("predict-mean-run").count("[1.5, 1.5]") == 4
    assert "rank 0 waits in all_reduce" in said("step-alone-run")


def script(ranks: int) -> str:
    """A regular expression that is found in what the script to take home prints."""
    return rf"\[{(ranks - 1) / 2}, "
