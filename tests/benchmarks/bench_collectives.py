"""The reference collectives against torch's own all_reduce: side by side, alternating, in the same gloo processes.

    python -m tests.benchmarks.bench_collectives [--ranks 4] [--rounds 20] [--json FILE]

Prints the median time of each as a ratio to torch's of the same round (medians of ratios), for a small, a middling
and a large tensor. A ratio on a few shared cores says how much Python and copying cost, not which algorithm suits a
network.
"""

from __future__ import annotations

import statistics
import time

import torch
import torch.distributed as dist

from kit.topics.collectives import reference as collectives
from tests.benchmarks.figures import Figure, options, tell
from tests.gloo import world

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
    parser = options(__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    chosen = parser.parse_args()
    figures = []
    with world(chosen.ranks) as ranks:
        for count in COUNTS:
            by_round = zip(*ranks.run(seconds, count, chosen.rounds), strict=True)
            slowest = [{name: max(rank[name] for rank in taken) for name in taken[0]} for taken in by_round]
            torch_ms = statistics.median(taken["torch"] for taken in slowest) * 1e3
            for name in NAMES:
                ratios = sorted(taken[name] / taken["torch"] for taken in slowest)
                quartiles = statistics.quantiles(ratios, n=4)
                what = f"{name} of {count:,} x float32, {chosen.ranks} ranks"
                beside = f"torch's all_reduce, {torch_ms:.2f} ms"
                spread = (quartiles[0], quartiles[2])
                figures.append(Figure(what, quartiles[1], "×", spread=spread, beside=beside))
    tell(figures, chosen.json)


if __name__ == "__main__":
    main()
