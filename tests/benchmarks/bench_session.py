"""Stepping and recording: what a step takes, and what watching costs against plain gloo in the same processes.

    python -m tests.benchmarks.bench_session [--ranks 4] [--rounds 24] [--json FILE]

A step is `session.step()` over all ranks in ring all-reduce with tensors captured, timed in the kernel from call to
return.
The cost of recording is a ratio: inside one recorded function, on the same ranks and the same model, 50-step loops of
DistributedDataParallel run in turn over the watched group and over a plain gloo group made beside it; the figure is the
median over rounds of watched time / plain time, and the spread is printed with it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import kit

GATES = {"step, median": 0.040, "record / plain gloo, median": 1.05}
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

    trainers = {"watched": trainer(dist.group.WORLD), "plain": trainer(plain)}
    for warm in trainers.values():
        run(warm)
    found = []
    for turn in range(rounds):
        order = ("watched", "plain") if turn % 2 else ("plain", "watched")
        times = {name: run(trainers[name]) for name in order}
        found.append((times["watched"], times["plain"]))
    return found


def step_times(cluster: Any) -> list[float]:
    import torch

    from kit.parallel.collectives import ring_all_reduce

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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    with kit.cluster(ranks=chosen.ranks, device="cpu") as cluster:
        steps = step_times(cluster)
        pairs = cluster.record(loops, chosen.rounds, chosen.width).results[0]
    ratios = sorted(watched / plain for watched, plain in pairs)
    figures = {
        "step, median": statistics.median(steps),
        "step, 95th percentile": sorted(steps)[int(0.95 * len(steps))],
        "record / plain gloo, median": statistics.median(ratios),
        "record / plain gloo, lowest": ratios[0],
        "record / plain gloo, highest": ratios[-1],
        "plain gloo, ms per training step": 1e3 * statistics.median(p for _, p in pairs) / STEPS,
    }
    for name, value in figures.items():
        gate = f"   gate {GATES[name]}" if name in GATES else ""
        print(f"{name:36} {value:8.4f}{gate}")
    if chosen.json:
        chosen.json.write_text(json.dumps({"ranks": chosen.ranks, "figures": figures, "gates": GATES}, indent=1))


if __name__ == "__main__":
    main()
