"""What lab 04 tells its reader to look at is there to be seen."""

from __future__ import annotations

import re
from collections.abc import Callable

LONG = True  # a long lab is run untouched, on ranks, in the full matrix alone


def solved(said: Callable[[str], str]) -> None:
    """At three ranks, with the solutions. said: what a cell put out, by its name."""
    assert len(set(re.findall(r"their norm (\S+)", said("see-sixteen-run")))) == 1
    assert len(set(re.findall(r"loss (\S+),", said("see-sixteen-run")))) == 3
    losses = [float(loss) for loss in re.findall(r"stage \d: loss (\S+)", said("predict-same-run"))]
    assert len(losses) == 4 and max(losses) - min(losses) < 1e-4  # fp32 sums in another order, two steps
    rows = re.findall(r"(?m)^rank \d +(\d+ +\d+ +\d+)$", said("step-between-run"))
    assert [row.split() for row in rows[:3]] == [["0", "0", "0"]] * 3
    assert [row.split().index("111") for row in rows[3:]] == [0, 1, 2]
    calls = dict(re.findall(r"(?m)^(\w+) +(.*)$", said("step-two-run")))
    assert calls["forward"].split() == ["G"] * 7  # six layers, and what belongs to none
    assert (calls["backward"].split().count("G"), calls["backward"].split().count("R")) == (6, 7)
    ratios = re.findall(r"(?m)([\d.]+) x$", said("measure-rest-run"))
    assert len(ratios) == 4 and all(abs(float(ratio) - 1) < 0.05 for ratio in ratios)
    took = re.findall(r"gather behind (\w+) +(\d+) ms", said("measure-hide-run"))
    assert [name for name, _ in took] == ["nothing", "step", "forward"]
    assert "405B           never    never    never  54 nodes" in said("measure-polaris-run")
    assert "two in hand: 94 nodes" in said("measure-polaris-run")
    kept = re.findall(r"\[(.*?)\]\.\.\., optimizer state ([\d,]+) bytes", said("break-whole-run"))
    assert kept[0][0] == kept[1][0]
    assert int(kept[1][1].replace(",", "")) == 3 * int(kept[0][1].replace(",", ""))
    assert said("break-late-run").count("should have been 111") == 3
    assert all(count != "0" for count in re.findall(r"rank \d: (\S+) NaNs", said("break-nan-run")))
    assert "rank 1 has a NaN in its own gradient of blocks.3" in said("break-check-run")
    assert "rank 1 died in all_gather" in said("break-dies-run")
    again, first = re.findall(r"\d+\.\d{4}", said("break-rescue-run"))
    assert again == first
    sent, weights = re.findall(r"([\d,]+) bytes from rank 0 \(4P = ([\d,]+)\)", said("harder-start"))[0]
    assert sent == weights
    narrow(said)
    resumes(said)


def narrow(said: Callable[[str], str]) -> None:
    """Tables that are read beside an open file browser: 66 characters stand in 560 px."""
    tables = ("predict-same-run", "measure-rest-run", "measure-torch-run", "measure-trade-run", "harder-start")
    for line in (line for name in tables for line in said(name).splitlines()):
        assert len(line) <= 66, line


def resumes(said: Callable[[str], str]) -> None:
    """A run that was cut off and goes on ends where one without a stop does, on every rank."""
    whole, cut, resumed = re.findall(r": +\[(.*)\]", said("take-home-resume"))
    assert whole == resumed != cut
    assert len(set(re.findall(r"\d+\.\d+", whole))) > 1, "ranks read windows of their own"


def replayed(said: Callable[[str], str]) -> None:
    """From the recordings, which are of four ranks."""
    rows = re.findall(r"(?m)^rank \d +(\d+ +\d+ +\d+ +\d+)$", said("step-between-run"))
    assert [row.split().index("1111") for row in rows[4:]] == [0, 1, 2, 3]
    calls = dict(re.findall(r"(?m)^(\w+) +(.*)$", said("step-two-run")))
    assert calls["forward"].split() == ["G"] * 7
    assert said("measure-rest-run").count("1.000 x") == 4
    assert said("break-late-run").count("should have been 1111") == 4
    assert "rank 1 died in all_gather" in said("break-dies-run")
    assert "borrowed · stop 0 · recorded" in said("step-borrow-panel")
    resumes(said)


def script(ranks: int) -> str:
    """A regular expression that is found in what the script to take home prints."""
    return r"(?m)^loss [1-4]\.\d+$"
