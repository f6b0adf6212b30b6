"""How close a throttled link comes to the alpha-beta model.

    python -m tests.benchmarks.bench_link [--repeats 15] [--json FILE]

The delay of a message is read off the trace: from when both sides had asked for it to when the receiver had it.
Printed is delay / (latency + bytes / bandwidth), the median and the spread, for single messages and in a ring of three
ranks, whose computing takes part in the same cores. The gate is 10 % either way.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kit
from kit.cost import network
from kit.trace import Trace
from tests.ranks import test_link as programs

GATE = 0.10
CASES: tuple[tuple[str, Callable[..., Any], int, float, float], ...] = (
    ("messages of 2 + 0 ms", programs.one_message, 4, 2e-3, 1e9),
    ("messages of 1 + 4 ms", programs.one_message, 400_000, 1e-3, 1e8),
    ("messages of 4 + 20 ms", programs.one_message, 1_000_000, 4e-3, 5e7),
    ("messages of a ring, 4 + 6.7 ms each", programs.ring, 1_000_000, 4e-3, 5e7),
)


def delays(trace: Trace) -> list[float]:
    """Seconds from the last side's asking to the receiver's having it, for every message of a run."""
    return [
        (m.received.ended - max(m.sent.issued, m.received.issued)) / 1e9
        for m in trace.messages()
        if m.received is not None and m.received.ended is not None
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    figures = {}
    with kit.cluster(ranks=3, device="cpu") as cluster:
        for name, function, nbytes, latency, bandwidth in CASES:
            with kit.link(latency, bandwidth):
                runs = [cluster.record(function, nbytes).trace for _ in range(chosen.repeats)]
            found = [(m, seconds) for trace in runs for m, seconds in zip(trace.messages(), delays(trace), strict=True)]
            ratios = sorted(seconds / network.message(m.nbytes, latency, bandwidth) for m, seconds in found)
            figures[name] = statistics.median(ratios)
            low, high, middle = ratios[0], ratios[-1], figures[name]
            print(f"{name:36} {middle:6.3f}   ({low:.3f} to {high:.3f})   gate {1 - GATE} to {1 + GATE}")
    if chosen.json:
        chosen.json.write_text(json.dumps({"figures": figures, "gate": GATE}, indent=1))


if __name__ == "__main__":
    main()
