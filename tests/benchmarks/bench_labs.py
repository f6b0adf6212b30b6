"""The labs from their first cell to their last: time, and the memory of all that a self-learner's machine holds.

    python -m tests.benchmarks.bench_labs [LAB ...] [--ranks 4] [--json FILE]

Memory is sampled: the proportional set sizes of a JupyterLab server and of the notebook's kernel with all its
descendants (controller, host agent, ranks, and the torchrun of the take-home script), summed, at its highest. The
program that feeds the cells is left out: in a browser it does not exist. The gate is Binder's 2 GB.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

from kit import resources
from tests.benchmarks.figures import Figure, options, tell

PERIOD = 0.2  # s between two samples


class Sampler(threading.Thread):
    """The highest sum of proportional set sizes of some processes and all their descendants."""

    def __init__(self, *roots: psutil.Process) -> None:
        super().__init__(daemon=True)
        self.roots = list(roots)
        self.left_out = {root.pid for root in roots[1:]}  # feeds the cells
        self.highest = 0
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(PERIOD):
            self.highest = max(self.highest, self.now())

    def now(self) -> int:
        family = {p.pid: p for root in self.roots for p in [root, *_children(root)] if p.pid not in self.left_out}
        return sum(map(_pss, family.values()))

    def stop(self) -> int:
        self._over.set()
        self.join()
        return self.highest


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _pss(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except (psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError):  # it has ended since
        return 0


def jupyterlab(folder: str) -> subprocess.Popen[bytes]:
    token = secrets.token_hex(8)
    options = ["--no-browser", "--port=0", "--ip=127.0.0.1", f"--IdentityProvider.token={token}", "--allow-root"]
    command = [sys.executable, "-m", "jupyterlab", *options]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("labs", nargs="*", help="such as 05 and 06a; none: all")
    parser.add_argument("--ranks", type=int, default=4)
    chosen = parser.parse_args()
    seconds: dict[str, float] = {}  # by the label of a notebook
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        server = jupyterlab(folder)
        try:
            time.sleep(5)
            for lab in resources.shipped().notebooks():
                label = lab.stem.partition("_")[0]
                if chosen.labs and label not in chosen.labs:
                    continue
                begin = time.perf_counter()
                parameters = ["-p", "ranks", str(chosen.ranks)]
                command = [sys.executable, "-m", "papermill", str(lab), str(Path(folder) / lab.name), *parameters]
                environment = {**os.environ, "LOCKSTEP_SOLUTIONS": "1"}
                feeder = subprocess.Popen(
                    command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                sampler = Sampler(psutil.Process(server.pid), psutil.Process(feeder.pid))
                sampler.start()
                code = feeder.wait()
                memory = sampler.stop() / 1e6
                seconds[label] = time.perf_counter() - begin
                beside = f"{seconds[label]:.0f} s with solutions, {chosen.ranks} ranks"
                what = f"lab {label}: memory of JupyterLab, kernel and ranks at its highest"
                figures.append(Figure(what, memory, "MB", 2000, beside=beside))
                if code:
                    raise SystemExit(f"{lab.name} ended with {code}")
        finally:
            server.terminate()
            server.wait()
    for pair, gate in ((("00", "01"), 240), (("03", "04"), 300), (("05", "06"), 300)):
        whole = {lab.stem.partition("_")[0] for lab in resources.shipped().notebooks() if lab.stem[:2] in pair}
        if not whole <= seconds.keys():
            continue
        taken = {label: seconds[label] for label in whole}
        what = f"labs {' and '.join(pair)} with solutions, one after the other"
        figures.append(Figure(what, sum(taken.values()), "s", gate))
    tell(figures, chosen.json)


if __name__ == "__main__":
    main()
