"""Lab 01: a bandwidth that was counted wrongly, repaired."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from kit.check.diagnose import nothing_returned
from kit.check.spec import Case, Run, Spec
from kit.check.traffic import silent


def _timing_cases(world: int, random: Random) -> Iterator[Case]:
    import torch

    for dtype in (torch.float32, torch.float64):
        size, seconds = random.randint(1000, 50_000), random.uniform(1e-5, 1e-3)
        tensors = torch.zeros(world * size, dtype=dtype), torch.zeros(size, dtype=dtype)
        yield Case(world, ((*tensors, seconds),) * world, size, {"itemsize": dtype.itemsize, "seconds": seconds})


def _bus_bandwidth(case: Case) -> float:
    whole = case.world * case.size * case.facts["itemsize"]
    return whole / case.facts["seconds"] * (case.world - 1) / case.world / 1e9


def _miscounted(run: Run, expected: Sequence[Any]) -> str | None:
    """A bandwidth that is wrong by one of the usual factors."""
    if not all(isinstance(got, int | float) for got in run.results):
        return None
    n, itemsize, gib = run.case.world, run.case.facts["itemsize"], 1e9 / 2**30
    output = f"{n} times too low: the output was counted, and S of a reduce-scatter is the whole that goes in"
    binary = "a GB is 10**9 bytes, and 2**30 of them are a GiB"
    share = f"(n - 1)/n of S crosses each link, here {n - 1}/{n}"
    mistakes = {
        gib / n: f"{output}; besides, {binary}",
        1 / n: output,
        gib: f"7 % too low: {binary}",
        1 / (n - 1): f"the output over the time: S is the whole that goes in, and {share}",
        n / (n - 1): f"that is algbw, S over the time: busbw counts that {share}",
        2.0: f"twice too high: {share}; 2 (n - 1)/n is the factor of an all-reduce, 1 that of algbw",  # alike for n = 2
        1 / itemsize: f"elements were counted, and each of them has {itemsize} bytes",
        1e9: "bytes per second, and GB/s are asked for: divide by 10**9",
    }
    for factor, sentence in mistakes.items():
        if all(abs(got - factor * right) <= 1e-6 * right for got, right in zip(run.results, expected, strict=True)):
            return f"rank 0 returned {run.results[0]:.4g} GB/s where {expected[0]:.4g} is right: {sentence}"
    return None


REDUCE_SCATTER_BANDWIDTH = Spec(
    id="reduce-scatter-bandwidth",
    lab="01_collectives",
    function="bus_bandwidth",
    size="C",
    cases=_timing_cases,
    oracle=lambda case: [_bus_bandwidth(case)] * case.world,
    hints=(
        "On 4 ranks each hands in 4 pieces and gets one. How many pieces cross its link? Count them in the ring.",
        (
            "n - 1 pieces leave each rank: (n - 1)/n of the whole. Which of `whole` and `piece` does the code multiply"
            " by that? And which power of ten is a GB?"
        ),
        "`size = whole.numel() * whole.element_size()`, then `size / seconds * (n - 1) / n / 1e9`.",
    ),
    diagnoses=(nothing_returned, _miscounted),
    traffic=(silent,),
    praise="counted on the whole buffer, in units of 10**9 bytes",
)
