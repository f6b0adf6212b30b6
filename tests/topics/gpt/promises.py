"""What lab 10 tells its reader to look at is there to be seen."""

from __future__ import annotations

import re
from collections.abc import Callable

QUICK = {"steps": 40, "seconds": 30}  # of its parameters: a person trains longer
LONG = True  # a long lab is run untouched, on ranks, in the full matrix alone


def solved(said: Callable[[str], str]) -> None:
    """At three ranks, with the solutions. said: what a cell put out, by its name."""
    losses = [float(loss) for loss in re.findall(r"\d\.\d\d", said("predict-chance-run").splitlines()[0])]
    assert losses[-1] < losses[0]
    assert "TF32 is what NVIDIA's" in said("measure-ladder") or "TF32  " in said("measure-ladder")
    held = [float(megabytes) for megabytes in re.findall(r"([\d.]+) MB", said("predict-fits-run"))]
    assert len(held) == 3 and held[0] > held[1] > held[2]
    assert "is out of memory" in said("measure-budget-run") and "zero3=3 fits" in said("measure-budget-run")
    assert re.search(r"goes on after step [1-9]", said("break-killed-run")), "from the checkpoint"
    assert "rank 2 was lost (killed by SIGKILL)" in said("break-killed-run")
    assert "The newest checkpoint is" in said("break-killed-run")
    assert re.search(r"2 ranks go on after step [1-9]", said("break-fewer-run"))
    found = said("break-hashes-run")
    assert "A between ranks: all the same" in found
    assert "B between ranks: up is the first to differ, before the first step" in found
    assert "C between ranks: all the same" in found
    assert "C beside the one meant: up is the first to differ, after step 1" in found
    for row in re.findall(r"(?m)^[ABC] (.*)$", said("break-museum-run")):
        assert float(row.split()[-1]) < float(row.split()[0]), "the loss of each exhibit falls"
    assert re.search(r"ddp=3 \| \d+ s \| validation loss \d\.\d+ nats", said("final-run"))


def replayed(said: Callable[[str], str]) -> None:
    """From the recordings, which are of four ranks."""
    assert "zero3=4 fits" in said("measure-budget-run") and "is out of memory" in said("measure-budget-run")
    assert "about to call all_reduce" in said("step-live-pause") and "recorded" in said("step-live-pause")
    assert "rank 3 was lost (killed by SIGKILL)" in said("break-killed-run")
    assert re.search(r"3 ranks go on after step [1-9]", said("break-fewer-run"))
    assert "C beside the one meant: up is the first to differ, after step 1" in said("break-hashes-run")
    assert re.search(r"ddp=4 \| \d+ s \| validation loss \d\.\d+ nats", said("final-run"))


def script(ranks: int) -> str:
    """A regular expression that is found in what the script to take home prints."""
    return r"(?m)^after (50|100) steps, loss [0-4]\.\d+$"
