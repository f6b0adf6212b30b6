"""What lab 03 tells its reader to look at is there to be seen."""

from __future__ import annotations

import re
from collections.abc import Callable

LONG = True  # a long lab is run untouched, on ranks, in the full matrix alone


def solved(said: Callable[[str], str]) -> None:
    """At three ranks, with the solutions. said: what a cell put out, by its name."""
    assert len(set(re.findall(r"first weight (\S+),", said("see-forward-run")))) == 1
    assert len(set(re.findall(r"loss (\S+)", said("see-forward-run")))) == 3
    assert said("predict-average-run").count("[37.0, 74.0]") == 3
    assert said("step-whole-run").count("[37.0, 74.0]") == 2
    for line in said("step-shorter-run").splitlines()[1:]:
        *lengths, mean = map(float, line.split()[1:])
        assert len(lengths) == 3 and mean < sum(lengths) / 3, line
    assert len(set(re.findall(r"([\d,]+) bytes", said("measure-bytes-run")))) == 1
    assert re.search(r"sampler .* 0\.0%", said("measure-ways-run"))
    alone, same, own = said("break-seed-run").strip().split("\n\n")
    assert {line.partition(":")[2] for line in same.splitlines()[1:]} == {alone.splitlines()[1].partition(":")[2]}
    assert len({line.partition(":")[2] for line in own.splitlines()[1:]}) == 3
    apart, equal = said("break-start-run").split("broadcast=")[1:]
    starts = [len(set(re.findall(r"weight: (\S+) at", text))) for text in (apart, equal)]
    steps = [len(set(re.findall(r"first, (\S+) by", text))) for text in (apart, equal)]
    assert (starts, steps) == ([3, 1], [1, 1])
    adam, adam_sum, sgd, sgd_sum = re.findall(r"loss (\S+) after", said("break-divide-run"))
    assert abs(float(adam) - float(adam_sum)) < 1e-2 and abs(float(sgd) - float(sgd_sum)) > 1e-2 or sgd_sum == "nan"
    assert "expert     [232.0, 232.0]" in said("break-skip-run")
    assert "Deadlock: ranks 0, 2 wait in all_reduce (line 7)" in said("break-skip-wait")
    assert re.findall(r"(\d+) all-reduces", said("quiet-run")) == ["36", "9"]
    counts = [line.split("  ")[-1] for line in re.findall(r"(?m)^(.*?)(?: +\S+ ms){3}$", said("tune-table"))]
    assert [int(count) for count in counts] == [21, 14, 9, 4, 1]
    furthest = [float(distance) for distance in re.findall(r"\d\.?\d*e[-+]\d+", said("torch-same-run"))]
    assert len(furthest) == 9 and max(furthest) < 1e-6  # fp32 sums in another order, three steps
    for cell, best in (("rate-low-run", "linear"), ("rate-high-run", "same")):
        ends = dict(re.findall(r"\((\w+)\): (\S+)", said(cell)))
        assert min(ends, key=lambda rule: float(ends[rule])) == best, ends


def replayed(said: Callable[[str], str]) -> None:
    """From the recordings, which are of four ranks."""
    assert said("predict-average-run").count("[277.75, 555.5]") == 4
    assert "one_step · stop 0 · recorded" in said("step-average-panel")
    assert "sampler" in said("measure-ways-run")
    assert "expert     [2232.0, 2232.0]" in said("break-skip-run")
    assert "Deadlock: ranks 0, 2, 3 wait in all_reduce" in said("break-skip-wait")
    assert "one bucket for all: a step of" in said("tune-run")
    assert "(linear)" in said("rate-low-run")


def script(ranks: int) -> str:
    """A regular expression that is found in what the script to take home prints."""
    return r"rank 0 has [1-4]\.\d+"
