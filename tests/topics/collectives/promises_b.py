"""What lab 01b tells its reader to look at is there to be seen."""

from __future__ import annotations

import re
from collections.abc import Callable

LONG = True  # a long lab is run untouched, on ranks, in the full matrix alone


def solved(said: Callable[[str], str]) -> None:
    """At three ranks, with the solutions. said: what a cell put out, by its name."""
    anywhere(said)
    phases = said("measure-async-step").splitlines()
    assert [("waits in" in line) for line in phases if line] == [False, False, True]
    assert "predicted 33.3 ms" in said("measure-predicted-run")
    assert too_low(said) == [("all_gather", "1.07"), ("reduce_scatter", "3.22")]  # GiB for GB, and n times as far
    assert "4 x float32" in said("break-shape-run") and "8 x float32" in said("break-shape-run")


def replayed(said: Callable[[str], str]) -> None:
    """From the recordings, which are of four ranks."""
    anywhere(said)
    assert "predicted 45.0 ms" in said("measure-predicted-run")
    assert too_low(said) == [("all_gather", "1.07"), ("reduce_scatter", "4.29")]
    assert said("see-tree-run").count(": 16 bytes") == 6
    assert re.findall(r"to rank (\d): (\d+) bytes", said("see-halving-run")) == [
        ("2", "8"),
        ("1", "4"),
        ("1", "4"),
        ("2", "8"),
    ]
    assert "halving_doubling_all_reduce · stop 0 · recorded" in said("step-halving-panel")


def anywhere(said: Callable[[str], str]) -> None:
    sixteen = re.findall(r"(\w+) +(\d+) messages, at most ([\d.]+) x", said("predict-messages-run"))
    assert sixteen == [("ring", "480", "1.88"), ("halving_doubling", "128", "1.88"), ("tree", "30", "4.00")]
    assert "2,095,104 messages in 2,046 rounds" in said("measure-thousand-run")
    assert "same operation in the same order" in said("break-order-run")
    kilobytes = re.findall(r"\d+ ranks: the ring should be quicker from about ([\d,.]+) kB on", said("harder-start"))
    assert len(kilobytes) == 3  # somewhere, on each of the worlds, the tree loses


def too_low(said: Callable[[str], str]) -> list[tuple[str, str]]:
    """By what factor the lecture's bandwidths are below the sweep's."""
    return re.findall(r"(\w+) +theirs .*: ([\d.]+) x", said("write-bandwidth-evidence"))


def script(ranks: int) -> str:
    """A regular expression that is found in what the script to take home prints."""
    return r"busbw \d+\.\d\d GB/s"
