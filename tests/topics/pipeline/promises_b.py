"""What lab 06b tells its reader to look at is there to be seen."""

from __future__ import annotations

import re
from collections.abc import Callable

LONG = True  # a long lab is run untouched, on ranks, in the full matrix alone


def solved(said: Callable[[str], str]) -> None:
    """At three ranks, with the solutions. said: what a cell put out, by its name."""
    assert "rank 2 held before line 10 by you" in said("step-hold-run")
    assert said("step-hold-run").count("finished") == 2
    assert formula(said) == {"1F1B": 120, "ZB-H1": 40}
    assert "activations held at most, by rank: 3, 3, 3" in said("write-mine-said")
    assert costs(said) == {
        "1F1B": ("3", "25.0%", "120"),
        "ZBH1": ("3", "10.0%", "40"),
        "ZBH2": ("5", "10.0%", "0"),
        "VHalf": ("2", "16.3%", "70"),
        "VMin": ("2", "20.0%", "90"),
        "DualPipeV": ("3.5", "5.3%", "20"),
    }
    assert two_steps(said) == {"ZBH1": (800, 800), "ZBH2": (800, 760)}
    assert "idle 16.7% of the time (target at most 14.3%, not yet)" in said("write-bench-rows")
    assert "ranks 0, 2 wait in all_reduce" in said("break-norm-run")
    assert "loss 0." in said("take-home-export") or "loss 1." in said("take-home-export"), said("take-home-export")
    the_same(said)


def replayed(said: Callable[[str], str]) -> None:
    """From the recordings, which are of four ranks."""
    assert "rank 3 held before line 10 by you" in said("step-hold-run")
    assert said("step-hold-run").count("finished") == 3
    assert formula(said) == {"1F1B": 180, "ZB-H1": 60}
    assert "activations held at most, by rank: 4, 4, 4, 4" in said("write-mine-said")
    assert costs(said) == {
        "1F1B": ("4", "27.3%", "180"),
        "ZBH1": ("4", "11.1%", "60"),
        "ZBH2": ("7", "11.1%", "0"),
        "VHalf": ("3", "18.6%", "110"),
        "VMin": ("2", "18.6%", "110"),
        "DualPipe": ("5", "4.0%", "20"),
    }
    assert two_steps(said) == {"ZBH1": (1080, 1080), "ZBH2": (1080, 1020)}
    assert "DualPipe      5 activations, idle  4.0%  two copies of the weights" in said("remember-run")
    assert "idle 18.4% of the time (target at most 16.7%, not yet)" in said("write-bench-rows")
    assert "ranks 0, 2, 3 wait in all_reduce" in said("break-norm-run")
    measured = re.findall(r"(\d+) ms\n", said("measure-steps-run") + "\n")
    assert len(measured) == 2 and int(measured[1]) < int(measured[0]), "as recorded, ZB-H2 is through sooner"
    shorter(said)
    the_same(said)


def the_same(said: Callable[[str], str]) -> None:
    """On any number of ranks."""
    assert re.search(r"'F': (\d+), 'I': \1, 'W': \1", said("see-two-run"))
    assert "finished" in said("step-chain-panel") or "line" in said("step-chain-panel")
    for cell in ("write-mine-said", "write-bench-measured", "write-gpt-run"):
        assert "losses and gradients are those of a run without a pipeline" in said(cell), cell
    assert "(stages of a GPT)" in said("write-gpt-run")
    assert "the gradient of its weights is lost" in said("break-lost-refused")
    assert "the gradient of stage 1 is not that of the model without a pipeline" in said("break-forced-run")
    assert "rank 1 finished without it" in said("break-norm-run")
    assert tight(said)
    assert "0RECV_B0" in said("take-home-schedule") and "0REDUCE_GRAD" in said("take-home-schedule")
    narrow(said)


def formula(said: Callable[[str], str]) -> dict[str, int]:
    """What a bubble of rank 0 should be, in ms."""
    rows = re.findall(r"(\S+) +(\d+) ms +(\d+) ms", said("measure-formula-run"))
    return {name: int(right) for name, right, _ in rows}


def costs(said: Callable[[str], str]) -> dict[str, tuple[str, ...]]:
    """Activations, idle share as drawn, and the bubble of rank 0 in ms."""
    rows = re.findall(r"(?m)^(\S+) +([\d.]+) +(\S+%) +\S+% +(\d+) ms", said("predict-held-table"))
    return {name: tuple(rest) for name, *rest in rows}


def tight(said: Callable[[str], str]) -> bool:
    """V-Min loses more than V-Half where F, I and W are no longer equal."""
    (half, half_uneven), (least, least_uneven) = (
        map(float, row)
        for row in re.findall(r"idle ([\d.]+)%, with uneven parts ([\d.]+)%", said("measure-uneven-run"))
    )
    return least_uneven - least > half_uneven - half > 0


def two_steps(said: Callable[[str], str]) -> dict[str, tuple[int, int]]:
    """With a barrier and without one, in ms, as drawn."""
    rows = re.findall(r"(\S+) +(\d+) ms +(\d+) ms +\d+ ms", said("measure-steps-run"))
    return {name: (int(one), int(other)) for name, one, other in rows}


def shorter(said: Callable[[str], str]) -> None:
    """As recorded, ZB-H1 waits less than 1F1B, and its rank 0 stands still for less time."""
    bubbles = [int(seen) for seen in re.findall(r"ms +(\d+) ms", said("measure-formula-run"))]
    assert len(bubbles) == 2 and bubbles[1] < bubbles[0], bubbles
    share = re.findall(r"ms; idle ([\d.]+)%", said("predict-idle-run"))
    assert len(share) == 2 and float(share[1]) < float(share[0]), share


def narrow(said: Callable[[str], str]) -> None:
    """Tables that are read beside an open file browser: 66 characters stand in 560 px."""
    for name in ("measure-formula-run", "predict-held-table", "measure-steps-run", "remember-run"):
        for line in said(name).splitlines():
            assert len(line) <= 66 or line.startswith("A recording, made on "), line


def script(ranks: int) -> str:
    """A regular expression that is found in what the script to take home prints."""
    return r"(?m)^loss [01]\.\d+$"
