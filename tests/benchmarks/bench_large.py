"""A large argument and a large result: what they take in all processes together, and how long they travel.

    python -m tests.benchmarks.bench_large [--ranks 4] [--gigabytes 0.5] [--json FILE]

One process is the kernel; this one adds up, every few milliseconds, what it and all processes of its cluster hold:
proportional set sizes, and the memory files behind them whole, mapped or not. What they held before the run is taken
off; the tensor of the kernel, or of the rank that returns one, counts. Times are those of a run from the call to the
result, and of the `reset()` after it, beside that of one copy of the tensor.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from typing import Any

import psutil

from tests.benchmarks.figures import Figure, options, tell
from tests.held import held

CASES = ("argument of record", "argument of step", "result of record")


class Most:
    """The most that a process and its descendants held while this is open, above what they held before."""

    def __init__(self, root: int) -> None:
        self._root = psutil.Process(root)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.bytes = 0

    def __enter__(self) -> Most:
        self._before = self._now()
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.005):
            self.bytes = max(self.bytes, self._now() - self._before)

    def _now(self) -> int:
        return held([self._root.pid, *(child.pid for child in self._root.children(recursive=True))])


def kernel(ranks: int, elements: int) -> None:
    """Runs the case that it reads, prints what it took, and so on."""
    import torch

    import kit

    def touch(x: Any) -> float:
        return float(x[-1])

    def make(elements: int) -> Any:
        import torch
        import torch.distributed as dist

        return torch.ones(elements) if dist.get_rank() == 0 else None

    cluster = kit.cluster(ranks, "cpu")
    assert kit.record(touch, torch.ones(1)).results == [1.0] * ranks
    x = torch.ones(elements)
    began = time.perf_counter()
    x.clone()
    print(json.dumps({"copy": time.perf_counter() - began}), flush=True)
    for case in sys.stdin:
        if case.startswith("result"):
            x = torch.ones(1)
        began = time.perf_counter()
        if case.strip() == "argument of step":
            session = kit.step(touch, x)
            while session.live:
                session.finish(timeout=600)
            assert session.results == [1.0] * ranks, session
        elif case.strip() == "argument of record":
            assert kit.record(touch, x).results == [1.0] * ranks
        else:
            assert float(kit.record(make, elements).results[0].sum()) == elements
        run = time.perf_counter() - began
        began = time.perf_counter()
        cluster.reset()
        print(json.dumps({"run": run, "reset": time.perf_counter() - began}), flush=True)
    cluster.stop()


def measure(ranks: int, gigabytes: float) -> list[Figure]:
    nbytes = int(gigabytes * 1e9) // 4 * 4
    command = [sys.executable, "-m", "tests.benchmarks.bench_large", "--kernel", "--ranks", str(ranks)]
    with subprocess.Popen(
        [*command, "--gigabytes", str(gigabytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as side:
        assert side.stdin is not None and side.stdout is not None
        copy = json.loads(side.stdout.readline())["copy"]
        figures = []
        for case in CASES:
            with Most(side.pid) as most:
                print(case, file=side.stdin, flush=True)
                took = json.loads(side.stdout.readline())
            own = 0 if case.startswith("result") else nbytes  # the kernel's tensor was there before
            what = f"{case}, {gigabytes:g} GB, {ranks} ranks"
            figures += [
                Figure(f"{what}: memory of all processes", (most.bytes + own) / nbytes, "×", 2.5, beside="its size"),
                Figure(f"{what}: time", took["run"], "s", beside=f"one copy of it, {copy:.2f} s"),
                Figure(f"{what}: reset() after it", took["reset"], "s", 1.5),
            ]
    return figures


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--gigabytes", type=float, default=0.5)
    parser.add_argument("--kernel", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.kernel:
        kernel(chosen.ranks, int(chosen.gigabytes * 1e9) // 4)
        return
    tell(measure(chosen.ranks, chosen.gigabytes), chosen.json)


if __name__ == "__main__":
    main()
