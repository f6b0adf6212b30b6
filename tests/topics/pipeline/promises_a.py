"""What lab 06a tells its reader to look at is there to be seen."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from kit.topics.pipeline import schedule

LONG = True  # a long lab is run untouched, on ranks, in the full matrix alone


def solved(said: Callable[[str], str]) -> None:
    """At three ranks, with the solutions. said: what a cell put out, by its name."""
    assert "idle 66.7% of the time" in said("see-one-words")
    shares(said, "66.7%", "25.0%", "200.0%", "33.3%")
    held = said("step-held-run")
    assert "rank 0 waits in send to rank 1" in held and "rank 2 waits in recv from rank 1" in held
    assert "rank 1 held before line 2 by you" in held and "[1012.0, 2012.0, 3012.0]" in held
    assert "m = 12:  12  12  12" in said("measure-memory-run")
    assert "activations held at most, by rank: 3, 2, 1" in said("write-mine-reveal")
    the_same(said)
    narrow(said)
    before, after = (re.search(r": (\d+) ms, idle (\d+)%", said(name)) for name in ("harder-start", "harder-cut-run"))
    assert (
        before and after and all(int(new) < int(old) for old, new in zip(before.groups(), after.groups(), strict=True))
    )
    script, _, _ = said("take-home-export").partition("$ torchrun")
    code = [line for line in script.splitlines()[1:] if line.strip()]  # after the line that launches it
    assert "def one_f_one_b_row" in script and len(code) <= 40


def replayed(said: Callable[[str], str]) -> None:
    """From the recordings, which are of four ranks."""
    assert "idle 75.0% of the time" in said("see-one-words")
    shares(said, "75.0%", "27.3%", "300.0%", "37.5%")
    assert "rank 3 waits in recv from rank 2" in said("step-held-run")
    everybody_but_the_slow_one(said)
    assert "activations held at most, by rank: 4, 3, 2, 1" in said("write-mine-reveal")
    the_same(said)


def the_same(said: Callable[[str], str]) -> None:
    """On any number of ranks."""
    for name, chunks, borders in (("1F1B", 1, 3), ("Interleaved1F1B", 2, 7)):  # p - 1 and 2p - 1
        homes = [rank for _, rank in sorted(schedule(name, 4, 8, chunks).rank_of.items())]
        assert sum(a != b for a, b in pairwise(homes)) == borders
    for cell in ("see-one-words", "write-mine-reveal", "measure-interleaved-run", "break-rescue-run"):
        assert "losses and gradients are those of a run without a pipeline" in said(cell), cell
    assert "rank 1, action 2: 1B1 comes before 1F1, which it needs" in said("write-validator-run")
    times = [int(ms) for ms in re.findall(r"(\d+) ms\n", said("measure-link-predicted") + "\n")]
    near, far = times[:3], times[3:]
    assert near[0] == near[1] > near[2], "interleaved is first where messages take no time"
    assert far[0] < far[1] < far[2], "and last on the slow link"
    assert "this schedule cannot run: 0B0: stage 0 needs the gradient" in said("break-crossed-refused")
    assert "target at most 15.0%, not yet" in said("harder-bench-said") and "In hand: 0I0" in said("harder-bench-said")
    assert "Deadlock" in said("break-forced-run") and "ranks 0 and 1 wait for each other" in said("break-forced-run")
    assert "rank 1, action 1: 1F1: stage 1 needs the activation" in said("break-forced-run")
    assert "rank 1 died in recv from rank 0" in said("break-dies-run")


def shares(said: Callable[[str], str], *figures: str) -> None:
    table = said("predict-two-run")
    assert all(figure in table for figure in figures), table


def everybody_but_the_slow_one(said: Callable[[str], str]) -> None:
    """Rank 1 waits less than before, all others more: as recorded."""
    rows = re.findall(r"rank (\d): idle +(\d+)%, with a slow stage +(\d+)%", said("step-slow-run"))
    assert rows, said("step-slow-run")
    for rank, before, after in rows:
        assert (int(after) < int(before)) == (rank == "1"), rank


def narrow(said: Callable[[str], str]) -> None:
    """Tables that are read beside an open file browser: 66 characters stand in 560 px."""
    for name in ("measure-share-run", "measure-rest-run", "measure-memory-run", "remember-run"):
        for line in said(name).splitlines():
            assert len(line) <= 66, line


def script(ranks: int) -> str:
    """A regular expression that is found in what the script to take home prints."""
    return r"(?m)^loss [01]\.\d+$"
