"""How close a throttled link comes to the alpha-beta model, by the clock on the learner's wall.

    python -m tests.benchmarks.bench_link [--repeats 15] [--rounds 3] [--ranks 2 3 4] [--json FILE]

Read inside the ranks, around the operation and nothing else: from when the last of its ranks calls it to when the last
of them has it. Links of latency alone, of bandwidth alone and of both; what one message takes by the model is 1.2, 2, 5
or 24 ms. Printed is measured / model, lower quartile and median. Each case has its turn in every round, minutes
apart, and the round with the lower median counts: other work on the machine only ever adds. The figures are the worst
of all links and numbers of ranks.

message: from rank 0 to rank 1. relay: from rank to rank, each passes on what has come. ring: ten exchanges with both
neighbours. The others are the library's own, by their formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

import torch
import torch.distributed as dist

import kit
from kit.cost import network
from kit.topics.collectives.reference import exchange
from tests.benchmarks.figures import Figure, options, tell

GATE = 1.10
TOTALS = (1.2e-3, 2e-3, 5e-3, 24e-3)  # s that one message takes by the model
BANDWIDTH = 1e8  # bytes/s
WARM_UP, ROUNDS = 3, 10
MESSAGES, COLLECTIVES = ("message", "relay", "ring"), ("all_reduce", "all_gather", "broadcast")
Span = tuple[float, float]  # s: when a rank called, when it had it


def timed(what: str, count: int, repeats: int) -> list[Span]:
    """On a rank: when each of the repeats began and ended here, after a barrier. count: elements of one message."""
    import time

    me, n = dist.get_rank(), dist.get_world_size()
    x, inbox = torch.ones(count), torch.empty(count)
    whole = torch.ones(n * count)

    def message() -> None:
        if me == 0:
            dist.send(x, 1)
        elif me == 1:
            dist.recv(inbox, 0)

    def relay() -> None:
        if me > 0:
            dist.recv(inbox, me - 1)
        if me < n - 1:
            dist.send(inbox, me + 1)

    def ring() -> None:
        for _ in range(ROUNDS):
            exchange(x, (me + 1) % n, inbox, (me - 1) % n)

    calls: dict[str, Callable[[], Any]] = {
        "message": message,
        "relay": relay,
        "ring": ring,
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: dist.all_gather(list(whole.chunk(n)), x),
        "broadcast": lambda: dist.broadcast(x, 0),
    }
    spans = []
    for _ in range(WARM_UP + repeats):
        dist.barrier()
        began = time.perf_counter()
        calls[what]()
        spans.append((began, time.perf_counter()))
    return spans[WARM_UP:]


def modelled(what: str, n: int, nbytes: int, latency: float, bandwidth: float) -> float:
    """Seconds by the model. nbytes: of one message."""
    one = network.message(nbytes, latency, bandwidth)
    if what in MESSAGES:
        return one * {"message": 1, "relay": n - 1, "ring": ROUNDS}[what]
    formula = {
        "all_reduce": network.ring_all_reduce,
        "all_gather": network.ring_all_gather,
        "broadcast": network.tree_broadcast,
    }[what]
    return formula(n, nbytes if what == "broadcast" else n * nbytes, latency, bandwidth)


def seconds(what: str, ranks: list[list[Span]]) -> list[float]:
    """What each repeat took: from the last call to the last end."""
    taking_part = ranks[:2] if what == "message" else ranks
    callers = ranks[:2] if what in ("message", "relay") else ranks  # the rest of a relay need not be there yet
    ends = [max(end for _, end in spans) for spans in zip(*taking_part, strict=True)]
    begins = [max(begin for begin, _ in spans) for spans in zip(*callers, strict=True)]
    return [end - begin for begin, end in zip(begins, ends, strict=True)]


def links(total: float) -> dict[str, tuple[float, float, int]]:
    """Latency (s), bandwidth (bytes/s) and elements of a message that takes `total` seconds on it."""
    return {
        "latency": (total, math.inf, 1),
        "bandwidth": (0.0, BANDWIDTH, round(total * BANDWIDTH / 4)),
        "both": (total / 2, BANDWIDTH, round(total / 2 * BANDWIDTH / 4)),
    }


@dataclass(frozen=True)
class Case:
    """Measured / model of one operation on one link and one number of ranks."""

    what: str
    total: float  # s that a message takes by the model
    quartile: float  # a quarter of the repeats were faster
    median: float


def measure(sizes: list[int], repeats: int) -> list[Case]:
    """Every case once, printed as it comes."""
    found: list[Case] = []
    for n in sizes:
        with kit.cluster(ranks=n, device="cpu") as cluster:
            for total in TOTALS:
                for kind, (latency, bandwidth, count) in links(total).items():
                    row = []
                    for what in (*MESSAGES, *COLLECTIVES):
                        model = modelled(what, n, 4 * count, latency, bandwidth)
                        with kit.link(latency, bandwidth):
                            spans = cluster.record(timed, what, count, repeats).results
                        ratios = [taken / model for taken in seconds(what, spans)]
                        row.append(Case(what, total, quantiles(ratios, n=4)[0], median(ratios)))
                    cells = "   ".join(f"{case.what} {case.quartile:.3f} {case.median:.3f}" for case in row)
                    print(f"{n} ranks  {total * 1e3:4g} ms of {kind:9}  {cells}", flush=True)
                    found += row
    return found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3, 4])
    chosen = parser.parse_args()
    rounds = [measure(chosen.ranks, chosen.repeats) for _ in range(chosen.rounds)]
    found = [min(same, key=lambda case: case.median) for same in zip(*rounds, strict=True)]
    figures = []
    for total in TOTALS:
        for kind, whats in (("messages", MESSAGES), ("collectives", COLLECTIVES)):
            cases = [case for case in found if case.total == total and case.what in whats]
            medians = [case.median for case in cases]
            beside = f"the alpha-beta model; the worst median of {len(cases)} cases, their worst lower quartile is "
            beside += f"{max(case.quartile for case in cases):.2f}"
            what = f"{kind} on throttled links, {total * 1e3:g} ms a message"
            figures.append(Figure(what, max(medians), "×", GATE, spread=(min(medians), max(medians)), beside=beside))
    lowest = min(case.median for case in found)
    figures.append(Figure("the lowest median of them all", lowest, "×", 2 - GATE, "at least"))
    tell(figures, chosen.json)


if __name__ == "__main__":
    main()
