"""A cluster against plain ipyparallel: the same four ranks, from nothing to the first all-reduce, side by side.

    python -m tests.benchmarks.bench_cluster [--ranks 4] [--rounds 3] [--json FILE]

Both sides start in a fresh Python, in turn, and go on to the result of one all-reduce over gloo on every rank. Memory
is the sum of the proportional set sizes of all processes of the cluster, without the Python that started it. Reset and
stop have no counterpart; they are seconds: from the call of `reset()` to the result of the next all-reduce, after a
rank was killed and after a deadlock, and the call of `stop()`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.figures import Figure, options, tell


def whole_sum() -> float:
    import torch
    import torch.distributed as dist

    x = torch.ones(4)
    dist.all_reduce(x)
    return float(x.sum())


def waits_for_ever() -> None:
    import torch
    import torch.distributed as dist

    if dist.get_rank() != 0:
        dist.recv(torch.ones(1), 0)


def plain(ranks: int) -> dict[str, float]:
    began = time.perf_counter()
    import ipyparallel
    import psutil

    def join(rank: int, world: int, file: str) -> None:
        import torch.distributed as dist

        dist.init_process_group("gloo", store=dist.FileStore(file, world), rank=rank, world_size=world)

    cluster = ipyparallel.Cluster(n=ranks, log_level=40)
    client = cluster.start_and_connect_sync(activate=False)
    view = client[:]
    meeting = f"/tmp/lockstep-bench-{os.getpid()}"
    for answer in [client[rank].apply_async(join, rank, ranks, meeting) for rank in range(ranks)]:
        answer.get()
    assert view.apply_sync(whole_sum) == [4.0 * ranks] * ranks
    seconds = time.perf_counter() - began
    memory = sum(process.memory_full_info().pss for process in psutil.Process().children(recursive=True))
    began = time.perf_counter()
    cluster.stop_cluster_sync()
    stop = time.perf_counter() - began
    Path(meeting).unlink(missing_ok=True)
    return {"first": seconds, "memory": memory, "stop": stop}


def ours(ranks: int) -> dict[str, float]:
    began = time.perf_counter()
    import kit

    cluster = kit.cluster(ranks, "cpu")
    ready = time.perf_counter() - began
    assert cluster.record(whole_sum).results == [4.0 * ranks] * ranks
    recorded = time.perf_counter() - began
    assert cluster.view.apply_sync(whole_sum) == [4.0 * ranks] * ranks
    viewed = time.perf_counter() - began
    memory = cluster.report().memory

    def reset() -> float:
        began = time.perf_counter()
        cluster.reset()
        assert cluster.record(whole_sum).results == [4.0 * ranks] * ranks
        return time.perf_counter() - began

    os.kill(cluster.pids[-1], signal.SIGKILL)
    wait_until(lambda: bool(cluster.lost))
    after_kill = reset()
    cluster.view.apply_async(waits_for_ever)
    time.sleep(0.5)
    after_deadlock = reset()
    began = time.perf_counter()
    cluster.stop()
    stop = time.perf_counter() - began
    return {
        "ready": ready,
        "recorded": recorded,
        "viewed": viewed,
        "memory": memory,
        "after_kill": after_kill,
        "after_deadlock": after_deadlock,
        "stop": stop,
    }


def wait_until(truth: Callable[[], bool]) -> None:
    while not truth():
        time.sleep(0.005)


def measure(side: str, ranks: int) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.benchmarks.bench_cluster", "--side", side, "--ranks", str(ranks)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{side} failed:\n{done.stdout}{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def compare(ranks: int, rounds: int) -> list[Figure]:
    """Rounds of both sides in turn; medians."""
    taken: dict[str, list[dict[str, float]]] = {"plain": [], "ours": []}
    for _ in range(rounds):
        for side, figures in taken.items():
            figures.append(measure(side, ranks))
    medians = {
        side: {name: statistics.median(t[name] for t in turns) for name in turns[0]} for side, turns in taken.items()
    }
    theirs, own = medians["plain"], medians["ours"]

    def ratio(what: str, name: str, base: str, gate: float, beside: str) -> Figure:
        ratios = [one[name] / other[base] for one, other in zip(taken["ours"], taken["plain"], strict=True)]
        return Figure(what, own[name] / theirs[base], "×", gate, spread=(min(ratios), max(ratios)), beside=beside)

    def seconds(what: str, name: str, gate: float, beside: str = "") -> Figure:
        return Figure(what, own[name], "s", gate, beside=beside)

    took = f"plain ipyparallel, {theirs['first']:.1f} s"
    return [
        ratio(f"{ranks} ranks, from nothing to the first all-reduce", "recorded", "first", 0.35, took),
        ratio("the same through ipyparallel's own view", "viewed", "first", 0.35, took),
        ratio("memory of all its processes (PSS)", "memory", "memory", 0.38,
              f"plain ipyparallel, {theirs['memory'] / 1e6:.0f} MB"),
        seconds("reset() after a kill, to the next all-reduce", "after_kill", 1.5),
        seconds("reset() after a deadlock, to the next all-reduce", "after_deadlock", 1.5),
        seconds("stop()", "stop", 1.0, f"plain ipyparallel, {theirs['stop']:.1f} s"),
    ]  # fmt: skip


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", choices=("plain", "ours"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.side:
        print(json.dumps((plain if chosen.side == "plain" else ours)(chosen.ranks)))
        return
    tell(compare(chosen.ranks, chosen.rounds), chosen.json)


if __name__ == "__main__":
    main()
