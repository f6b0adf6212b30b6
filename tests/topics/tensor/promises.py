"""What lab 05 tells its reader to look at is there to be seen."""

from __future__ import annotations

import re
from collections.abc import Callable

LONG = True  # a long lab is run untouched, on ranks, in the full matrix alone
SCRIPT = r"mine and DTensor's differ by (\d\.\de-0[5-9]|0\.0e\+00) in y, (\d\.\de-0[4-9]|0\.0e\+00) in dx"


def solved(said: Callable[[str], str]) -> None:
    """At three ranks, with the solutions. said: what a cell put out, by its name."""
    assert [f"[{', '.join([digits] * 3)}]" in said("step-chain-chart") for digits in ("1", "11", "111")] == [True] * 3
    assert "rank 0 waits in all_reduce for ranks 1 and 2" in said("step-hold-run")
    seen(said)
    times = [int(ms) for ms in re.findall(r"(?m)(\d+) ms$", said("measure-nodes-run"))]
    assert len(times) == 3 and all(times)
    loss = dict(re.findall(r"(?m)^(shared|own) seed +loss (\S+)", said("break-seed-run")))
    assert float(loss["shared"]) > 2 * float(loss["own"]), "it trains worse"
    assert "3 of 3 shards equal, 16 different features of 48" in said("break-seed-run")
    assert "1 of 3 shards equal, 48 different features of 48" in said("break-seed-run")
    script, _, run = said("take-home-export").partition("$ torchrun")
    assert "def parallel_mlp" in script and len([line for line in script.splitlines() if line.strip()]) <= 40
    assert len(re.findall(SCRIPT, run)) == 1, "rank 0 speaks"


def seen(said: Callable[[str], str]) -> None:
    """What holds on any number of ranks."""
    assert said("see-columns-run").strip().endswith("True") and said("see-rows-run").strip().endswith("True")
    assert re.findall(r": +(True|False)$", said("predict-run"), re.MULTILINE) == ["False", "True", "True"]
    assert "In hand: handing the sum so far to the next rank" in said("step-chain-chart")
    assert said("step-hold-run").strip().endswith("In hand: adding up the terms (all_reduce).")
    assert said("step-columns-run").count("True") == 2
    assert "as in one piece: True" in said("measure-bytes-run")
    assert "calls: all_reduce all_reduce\n" in said("measure-bytes-run")
    told = re.search(r"by formula ([\d,]+) bytes\nmeasured +([\d,]+) bytes, ([\d,]+) of", said("measure-bytes-run"))
    assert told
    formula, measured, forward = (int(number.replace(",", "")) for number in told.groups())
    assert formula == measured == 2 * forward
    whole, parts = re.findall(r"loss (\S+)", said("measure-gpt-run"))
    assert abs(float(whole) - float(parts)) < 1e-5  # fp32 sums in another order
    (same,) = re.findall(r"the same dX: (.*)", said("measure-nodes-run"))
    sizes = [float(size) for size in same.split()]
    assert len(sizes) == 3 and max(sizes) - min(sizes) < 1e-4 * max(sizes)  # fp32 sums in another order
    assert "sends the other 6,144 bytes" in said("measure-nodes-run"), "32 tokens x 48 channels x 4 bytes"
    drift(said("break-copy-run"))
    drawn = re.findall(r"drawn on \d: (.*)", said("break-whole-run"))
    assert len(drawn) == 3 and len(set(drawn)) == 1
    assert said("remember-run").count("2 all-reduces") == 2


def drift(said: str) -> None:
    """With copy_in all ranks' gains are equal; without it none are, though losses are, and it trains worse."""
    right, wrong = (re.findall(r"loss (\S+), gain (.*)", half) for half in said.split("entry: nothing"))
    assert len(set(right)) == 1 and len({gain for _, gain in wrong}) == len(wrong) > 1
    assert len({loss for loss, _ in wrong}) == 1 and float(wrong[0][0]) > float(right[0][0])


def replayed(said: Callable[[str], str]) -> None:
    """From the recordings, which are of four ranks."""
    seen(said)
    assert "1111" in said("step-chain-chart")
    assert "4 of 4 shards equal, 12 different features of 48" in said("break-seed-run")


def script(ranks: int) -> str:
    """A regular expression that is found in what the script to take home prints."""
    return SCRIPT
