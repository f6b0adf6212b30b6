"""Stepping and recording: what a step takes, and what watching costs against plain gloo in the same processes.

    python -m tests.benchmarks.bench_session [--ranks 4] [--rounds 40] [--json FILE]

A step is `session.step()` over all ranks in ring all-reduce with tensors captured, timed in the kernel from call to
return. The cost of recording is a ratio: inside one recorded function, on the same ranks and the same model, 50-step
loops of DistributedDataParallel run in turn over the watched group and over a plain gloo group made beside it. Of two
equal models the one made first is often the quicker, by more than what is looked for here: so there are two of each
kind, made in the order watched, plain, plain, watched, and each round runs all four, beginning with another one. The
figure is the median over rounds of watched time / plain time, with its quartiles.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import kit
from tests.benchmarks.figures import Figure, options, tell

STEPS = 50


def loops(rounds: int, width: int) -> list[tuple[float, float]]:
    """(seconds watched, seconds plain) of each round; every rank measures, rank 0's are used."""
    import time

    import torch
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    watched_helper = c10d._new_process_group_helper
    c10d._new_process_group_helper = watched_helper.__wrapped__
    plain = dist.new_group(backend="gloo")
    c10d._new_process_group_helper = watched_helper

    def trainer(group: Any) -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 8)
        )
        wrapped = DistributedDataParallel(model, process_group=group, bucket_cap_mb=1)
        return wrapped, torch.optim.AdamW(wrapped.parameters(), lr=1e-3)

    def run(trainer: Any) -> float:
        model, optimizer = trainer
        x = torch.randn(16, width)
        dist.barrier(group=plain)
        begin = time.perf_counter()
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        dist.barrier(group=plain)
        return time.perf_counter() - begin

    world = dist.group.WORLD
    trainers = [trainer(group) for group in (world, plain, plain, world)]
    for warm in trainers:
        run(warm)
    found = []
    for turn in range(rounds):
        order = [(turn + place) % 4 for place in range(4)]
        times = {number: run(trainers[number]) for number in (order if turn // 4 % 2 else reversed(order))}
        found.append((times[0] + times[3], times[1] + times[2]))
    return found


def step_times(cluster: Any) -> list[float]:
    import torch

    from kit.topics.collectives.reference import ring_all_reduce

    times = []
    for _ in range(3):
        tens = kit.per_rank([torch.full((8,), 10.0**r) for r in range(cluster.size)])
        session = cluster.step(ring_all_reduce, tens, None)
        while session.live:
            begin = time.perf_counter()
            session.step()
            times.append(time.perf_counter() - begin)
    return times


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--width", type=int, default=256)
    chosen = parser.parse_args()
    with kit.cluster(ranks=chosen.ranks, device="cpu") as cluster:
        steps = sorted(step_times(cluster))
        pairs = cluster.record(loops, chosen.rounds, chosen.width).results[0]
    ratios = sorted(watched / plain for watched, plain in pairs)
    quartiles = statistics.quantiles(ratios, n=4)
    plain = 1e3 * statistics.median(p for _, p in pairs) / (2 * STEPS)
    tell(
        [
            Figure(
                f"session.step(), {chosen.ranks} ranks in ring all-reduce, tensors captured",
                1e3 * statistics.median(steps), "ms", 40, spread=(1e3 * steps[0], 1e3 * steps[int(0.95 * len(steps))]),
                beside="lowest and 95th percentile in brackets",
            ),
            Figure(
                f"kit.record, {STEPS}-step DistributedDataParallel loops in turn, {chosen.ranks} ranks",
                quartiles[1], "×", 1.02, spread=(quartiles[0], quartiles[2]),
                beside=f"plain gloo, {plain:.1f} ms a step; quartiles of {chosen.rounds} rounds",
            ),
        ],
        chosen.json,
    )  # fmt: skip


if __name__ == "__main__":
    main()
