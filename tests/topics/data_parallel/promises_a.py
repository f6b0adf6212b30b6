"""What lab 03a tells its reader to look at is there to be seen."""

from __future__ import annotations

import re
from collections.abc import Callable

LONG = True  # a long lab is run untouched, on ranks, in the full matrix alone


def solved(said: Callable[[str], str]) -> None:
    """At three ranks, with the solutions. said: what a cell put out, by its name."""
    assert len(set(re.findall(r"first weight (\S+),", said("see-forward-run")))) == 1
    assert len(set(re.findall(r"loss (\S+)", said("see-forward-run")))) == 3
    assert said("predict-average-run").count("[148.0, 296.0]") == 3
    assert said("step-whole-run").count("[148.0, 296.0]") == 2
    for line in said("step-shorter-run").splitlines()[1:]:
        *lengths, mean = map(float, line.split()[1:])
        assert len(lengths) == 3 and mean < sum(lengths) / 3, line
    bytes_are_measured(said)
    assert re.search(r"sampler .* 0\.0%", said("measure-ways-run"))
    alone, same, own = said("break-seed-run").strip().split("\n\n")
    first = {text: set(re.findall(r": (\S+ \S+ \S+ \S+)", text)) for text in (alone, same, own)}
    assert first[same] == first[alone] and len(first[own]) == 3
    (copied,) = set(re.findall(r"at the end (\S+)", same))
    assert all(float(end) < float(copied) for end in re.findall(r"at the end (\S+)", own))
    apart, equal = said("break-start-run").split("broadcast=")[1:]
    starts = [len(set(re.findall(r"weight: (\S+) at", text))) for text in (apart, equal)]
    steps = [len(set(re.findall(r"first, (\S+) by", text))) for text in (apart, equal)]
    assert (starts, steps) == ([3, 1], [1, 1])
    adam, adam_sum, sgd, sgd_sum = map(float, re.findall(r"loss (\S+) after", said("break-divide-run")))
    assert abs(adam - adam_sum) < 1e-2 < abs(sgd - sgd_sum) or sgd_sum != sgd_sum
    assert "expert     [232.0, 232.0]" in said("break-skip-run")
    assert "Deadlock: ranks 0, 2 wait in all_reduce (line 7)" in said("break-skip-wait")


def replayed(said: Callable[[str], str]) -> None:
    """From the recordings, which are of four ranks."""
    assert said("predict-average-run").count("[1111.0, 2222.0]") == 4
    assert "one_step · stop 0 · recorded" in said("step-average-panel")
    bytes_are_measured(said)
    assert "sampler" in said("measure-ways-run")
    assert "expert     [2232.0, 2232.0]" in said("break-skip-run")
    assert "Deadlock: ranks 0, 2, 3 wait in all_reduce" in said("break-skip-wait")


def bytes_are_measured(said: Callable[[str], str]) -> None:
    """What was seen to be sent is what the formula says, but for chunks of unequal size; a built-in shows nothing."""
    measured, computed = re.findall(r"sent ([\d,]+) bytes", said("measure-bytes-run")), said("measure-bytes-run")
    once, twice = (int(found.replace(",", "")) for found in measured)
    (formula,) = re.findall(r"= +([\d,]+) bytes", computed)
    assert once == twice and abs(once / int(formula.replace(",", "")) - 1) < 0.01
    assert f"algorithmic {formula} bytes (computed), wire 0 (seen)" in said("measure-bytes-built-in")


def script(ranks: int) -> str:
    """A regular expression that is found in what the script to take home prints."""
    return r"epoch 0: loss [3-5]\.\d+.*\n.*epoch 1: loss [2-4]\.\d+"
