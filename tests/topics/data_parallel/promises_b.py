"""What lab 03b tells its reader to look at is there to be seen."""

from __future__ import annotations

import re
from collections.abc import Callable

LONG = True  # a long lab is run untouched, on ranks, in the full matrix alone


def solved(said: Callable[[str], str]) -> None:
    """At three ranks, with the solutions. said: what a cell put out, by its name."""
    came = said("predict-first-run").split()
    assert (came[0], came[-1]) == ("norm.weight", "tokens.weight")
    quiet = re.findall(r"(\d+) all-reduces, (\d+) kB .* gradient (\S+)", said("quiet-run"))
    assert [int(calls) for calls, _, _ in quiet] == [36, 9]
    assert abs(float(quiet[0][2]) / float(quiet[1][2]) - 1) < 1e-4  # fp32 sums in another order
    assert said("break-order-run").count("a = 221, b = 112") == 1  # rank 0, whose a met the others' b
    assert said("break-order-run").count("a = 112, b = 221") == 2
    assert "\nyour hooks: a step of" in said("tune-run")
    counts = [line.split("  ")[-1] for line in re.findall(r"(?m)^(.*?)(?: +\S+ ms){3}$", said("tune-table"))]
    assert [int(count) for count in counts] == [21, 14, 9, 4, 1]
    furthest = [float(distance) for distance in re.findall(r"\d\.?\d*e[-+]\d+", said("torch-same-run"))]
    assert len(furthest) == 3 and max(furthest) < 1e-6  # fp32 sums in another order, three steps
    for cell, best in (("rate-low-run", "linear"), ("rate-high-run", "same")):
        ends = dict(re.findall(r"\((\w+)\): (\S+)", said(cell)))
        assert min(ends, key=lambda rule: float(ends[rule])) == best, ends
    assert 0 < float(re.findall(r"off by (\S+)%", said("harder-start"))[0]) < 1
    resumes(said)


def replayed(said: Callable[[str], str]) -> None:
    """From the recordings, which are of four ranks."""
    assert "leaves_early · stop 0 · recorded" in said("step-early-panel")
    assert said("break-order-run").count("a = 1112, b = 2221") == 3
    assert "one bucket for all: a step of" in said("tune-run")
    assert "hooks: a step of" in said("tune-run")
    assert "(linear)" in said("rate-low-run")
    resumes(said)


def resumes(said: Callable[[str], str]) -> None:
    """A run that was cut off and goes on ends where one without a stop does, on every rank."""
    whole, cut, resumed = re.findall(r": +\[(.*)\]", said("take-home-resume"))
    assert whole == resumed != cut
    assert len(set(re.findall(r"\d+\.\d+", whole))) > 1, "ranks read windows of their own"


def script(ranks: int) -> str:
    """A regular expression that is found in what the script to take home prints."""
    return r"(?m)^loss [1-4]\.\d+$"
