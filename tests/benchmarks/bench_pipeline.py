"""A pipeline step against torch.distributed.pipelining with the same schedule, and idle shares against the simulated.

    python -m tests.benchmarks.bench_pipeline [--rounds 30] [--micro-batches 8] [--no-shares] [--json FILE]

First two plain gloo processes, nothing recorded: each rank holds its stages of a small GPT twice, once for our runtime
and once for torch's, which reads our schedule from its text form. In a round each takes a step, in an order that turns.
The figure is torch's time over ours in the same round (slowest rank each time): the median, with quartiles. Other work
on the machine widens the spread; torch against itself ('torch again') shows how far.

Then every schedule on four recorded ranks whose stages sleep, 20 ms for each of F, I and W, and on two that compute the
stages of a GPT: idle share as measured less that of a simulation into which the measured time of each action was put,
in percentage points.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from kit.gpt.model import GPT, GPTConfig, loss_of
from kit.plan.families import FAMILIES, schedule
from kit.topics.pipeline.reference import Pipeline, cut
from kit.topics.pipeline.work import GPTWork, Stages, Work
from tests.benchmarks.figures import Figure, options, tell
from tests.gloo import world

GATE, POINTS = 0.95, 5.0
B = 4
SCHEDULES = {"GPipe": None, "1F1B": None, "Interleaved1F1B": 2, "ZBH1": None}
held: dict[str, Callable[[], Any]] = {}  # on a rank: name -> a step


def config() -> GPTConfig:
    return GPTConfig(n_layer=4, n_head=4, n_embd=128, block_size=64, vocab_size=65, tied=False)


def prepare(family: str, m: int) -> None:
    for name in ("torch", "torch again", "Pipeline"):
        held[name] = (ours if name == "Pipeline" else torchs)(family, m)
        held[name]()
        held[name]()


def batch(m: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    tokens = torch.randint(65, (m * B, config().block_size + 1))  # (mB, T + 1)
    return tokens[:, :-1], tokens[:, 1:]


def stages_of(family: str, m: int) -> tuple[Any, dict[int, Any]]:
    torch.manual_seed(0)
    plan = schedule(family, dist.get_world_size(), m, SCHEDULES[family])
    whole = cut(GPT(config(), device="cpu"), plan.stages)
    return plan, {number: whole[number] for number in sorted({a.stage for a in plan.rows[dist.get_rank()]})}


def ours(family: str, m: int) -> Callable[[], Any]:
    plan, own = stages_of(family, m)
    like = torch.empty(B, config().block_size, config().n_embd)
    pipeline = Pipeline(plan.rows, own, plan.stages, like, loss_of)
    x, y = (list(part.chunk(m)) for part in batch(m))
    return lambda: pipeline.step(x, y)


def torchs(family: str, m: int) -> Callable[[], Any]:
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    plan, own = stages_of(family, m)
    made = [PipelineStage(stage, number, plan.stages, torch.device("cpu")) for number, stage in own.items()]
    runtime = _PipelineScheduleRuntime(made, m, loss_fn=loss_of)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "schedule.csv"
        file.write_text(plan.text())
        runtime._load_csv(str(file))
    x, y = batch(m)
    given = [x] if 0 in own else []
    return lambda: runtime.step(*given, target=y if plan.stages - 1 in own else None)


def one_round(turn: int) -> dict[str, float]:
    names, took = list(held), {}
    for name in names[turn % len(names) :] + names[: turn % len(names)]:
        dist.barrier()
        began = time.perf_counter()
        held[name]()
        dist.barrier()
        took[name] = time.perf_counter() - began
    return took


def speeds(rounds: int, m: int) -> list[Figure]:
    figures = []
    for family in SCHEDULES:
        with world(2) as ranks:
            ranks.run(prepare, family, m)
            taken = [ranks.run(one_round, turn) for turn in range(rounds)]
        slowest = [{name: max(rank[name] for rank in by_rank) for name in by_rank[0]} for by_rank in taken]
        step = statistics.median(took["torch"] for took in slowest)
        for name in ("torch again", "Pipeline"):
            low, median, high = statistics.quantiles([took["torch"] / took[name] for took in slowest], n=4)
            figures.append(
                Figure(
                    f"{name}: speed of a step, {family}, 2 ranks, {m} micro-batches",
                    median,
                    "×",
                    GATE if name == "Pipeline" else None,
                    "at least",
                    (low, high),
                    f"torch.distributed.pipelining, {step * 1e3:.0f} ms; quartiles of {rounds} rounds",
                )
            )
    return figures


def shares(ranks: int, work: Stages) -> list[Figure]:
    from kit.clusters.request import checked
    from kit.run.live import LiveRunner
    from kit.topics.pipeline import run

    figures = []
    cluster = LiveRunner(checked(ranks, "cpu"))
    try:
        for family in FAMILIES:
            plan = schedule(family, ranks, 8)
            ran = run(plan, work, runner=cluster)
            line, again = ran.timeline, ran.replayed
            apart = 100 * abs(line.idle_share - again.idle_share)
            beside = f"measured {line.idle_share:.1%}, simulated {again.idle_share:.1%}; {work.about}"
            name = f"idle share apart, points: {family}, {ranks} ranks"
            figures.append(Figure(name, apart, "pp", POINTS, beside=beside))
    finally:
        cluster.stop()
    return figures


def all_shares() -> list[Figure]:
    gpt = GPTWork(GPTConfig(n_layer=8, n_head=4, n_embd=256, block_size=128, vocab_size=65), batch=B)
    return shares(4, Work()) + shares(2, gpt)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--no-shares", action="store_true")
    chosen = parser.parse_args()
    figures = speeds(chosen.rounds, chosen.micro_batches)
    tell(figures if chosen.no_shares else figures + all_shares(), chosen.json)


if __name__ == "__main__":
    main()
