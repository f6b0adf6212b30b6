"""The reference collectives against torch's own all_reduce: side by side, alternating, in the same gloo processes.

    python -m tests.benchmarks.bench_collectives [--ranks 4] [--rounds 20]

Prints the median time of each as a ratio to torch's of the same round (medians of ratios), for a small, a middling
and a large tensor. A ratio on a few shared cores says how much Python and copying cost, not which algorithm suits a
network.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
import torch.distributed as dist

from kit.parallel import collectives
from tests.ranks.gloo import world

NAMES = ("ring_all_reduce", "tree_all_reduce", "halving_doubling_all_reduce", "all_reduce_via_root")
COUNTS = (1_000, 100_000, 2_000_000)


def seconds(count: int, rounds: int) -> list[dict[str, float]]:
    """What each algorithm took on this rank, round by round; torch's own under 'torch'."""
    x = torch.rand(count)
    times = []
    for turn in range(rounds + 2):
        taken = {}
        for name in ("torch", *NAMES):
            dist.barrier()
            began = time.perf_counter()
            if name == "torch":
                y = x.clone()  # the others return new tensors too
                dist.all_reduce(y)
            else:
                getattr(collectives, name)(x)
            taken[name] = time.perf_counter() - began
        if turn >= 2:  # the first rounds connect the pairs
            times.append(taken)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with world(options.ranks) as ranks:
        print(f"{options.ranks} ranks, gloo, float32, {options.rounds} rounds; slowest rank, ratio to torch's")
        print(f"{'elements':>10} {'torch':>10} " + " ".join(f"{name:>28}" for name in NAMES))
        for count in COUNTS:
            by_round = zip(*ranks.run(seconds, count, options.rounds), strict=True)
            slowest = [{name: max(rank[name] for rank in taken) for name in taken[0]} for taken in by_round]
            medians = [statistics.median(taken[name] / taken["torch"] for taken in slowest) for name in NAMES]
            torch_ms = statistics.median(taken["torch"] for taken in slowest) * 1e3
            print(f"{count:>10} {torch_ms:>7.2f} ms " + " ".join(f"{ratio:>26.2f} x" for ratio in medians))


if __name__ == "__main__":
    main()
