"""Tokens per second of the stages of ZeRO against torch's own sharding on the same small GPT.

    python -m tests.benchmarks.bench_zero [--ranks 2] [--rounds 40] [--steps 2] [--json FILE]

Stage 1 stands beside DistributedDataParallel with ZeroRedundancyOptimizer, stage 2 beside FSDP2 that keeps the weights
after forward (`reshard_after_forward=False`), stage 3 beside FSDP2 that lets them go; FSDP2's layers are the blocks.
Torch's optimizer is its fused AdamW. Plain gloo processes, nothing recorded; every rank holds one copy of the model for
each, with the same weights and batch, and in a round each trains for some steps, in an order that turns from round to
round. A figure is a stage's tokens per second over torch's of the same round (slowest rank each time): the median over
the rounds, with quartiles. Other work on the machine widens the spread; torch against itself ('again') shows how far.
Beside it, as a figure that other work disturbs less: the processor time of all ranks over torch's, all rounds together.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from kit.gpt.model import GPT, GPTConfig
from kit.topics.zero.reference import ZeroStage1, ZeroStage2, ZeroStage3
from tests.benchmarks.figures import Figure, options, tell
from tests.gloo import world

GATE = 0.85  # tokens per second of each stage over torch's
LR = 1e-3
B = 12
PAIRS = {  # what is measured: what it stands beside
    "stage 1": "ZeroRedundancyOptimizer",
    "stage 2": "FSDP2, weights kept",
    "stage 3": "FSDP2",
    "FSDP2 again": "FSDP2",
}
held: dict[str, Any] = {}  # on a rank: name -> (model, optimizer)


def zero_redundancy_optimizer(model: GPT) -> Any:
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    wrapped = DistributedDataParallel(model)
    return wrapped, ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.AdamW, lr=LR, fused=True)


def fsdp2(reshard: bool) -> Callable[[GPT], Any]:
    def make(model: GPT) -> Any:
        from torch.distributed.fsdp import fully_shard

        for block in model.blocks:
            fully_shard(block, reshard_after_forward=reshard)
        fully_shard(model, reshard_after_forward=reshard)
        return model, torch.optim.AdamW(model.parameters(), lr=LR, fused=True)

    return make


def stage(make: Any) -> Callable[[GPT], Any]:
    return lambda model: (model, make(model, lr=LR))


def prepare(config: GPTConfig) -> int:
    """Make a model and its optimizer for each name, and take two steps with it. Returns P."""
    made = {
        "ZeroRedundancyOptimizer": zero_redundancy_optimizer,
        "stage 1": stage(ZeroStage1),
        "FSDP2, weights kept": fsdp2(reshard=False),
        "stage 2": stage(ZeroStage2),
        "FSDP2": fsdp2(reshard=True),
        "stage 3": stage(ZeroStage3),
        "FSDP2 again": fsdp2(reshard=True),
    }
    for name, make in made.items():
        torch.manual_seed(0)
        held[name] = make(GPT(config))
        seconds(name, 2, config)
    return GPT(config).count()


def seconds(name: str, steps: int, config: GPTConfig) -> tuple[float, float]:
    """What the steps took on this rank, from one barrier to the next: by the clock, and of the processor."""
    model, optimizer = held[name]
    tokens = torch.randint(config.vocab_size, (B, config.block_size + 1))  # (B, T + 1)
    dist.barrier()
    began, worked = time.perf_counter(), time.process_time()
    for _ in range(steps):
        optimizer.zero_grad()
        _, loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
    dist.barrier()
    return time.perf_counter() - began, time.process_time() - worked


def one_round(turn: int, steps: int, config: GPTConfig) -> dict[str, tuple[float, float]]:
    names = list(held)
    order = names[turn % len(names) :] + names[: turn % len(names)]
    return {name: seconds(name, steps, config) for name in order}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=2)
    chosen = parser.parse_args()
    config = GPTConfig.named("cpu")
    with world(chosen.ranks) as ranks:
        count = ranks.run(prepare, config)[0]
        taken = [ranks.run(one_round, turn, chosen.steps, config) for turn in range(chosen.rounds)]
    names = list(taken[0][0])
    slowest = [{name: max(rank[name][0] for rank in by_rank) for name in names} for by_rank in taken]
    worked = {name: sum(rank[name][1] for by_rank in taken for rank in by_rank) for name in names}
    tokens = chosen.ranks * B * config.block_size * chosen.steps
    figures = []
    for name, torchs in PAIRS.items():
        low, median, high = statistics.quantiles([took[torchs] / took[name] for took in slowest], n=4)
        speed = tokens / statistics.median(took[torchs] for took in slowest)
        beside = (
            f"{torchs}, {speed:.0f} tokens/s; quartiles of {chosen.rounds} rounds;"
            f" processor time {worked[name] / worked[torchs]:.3f} x"
        )
        what = f"{name}: tokens/s, GPT of {count / 1e6:.2f} M, {chosen.ranks} ranks"
        gate = GATE if name.startswith("stage") else None
        figures.append(Figure(what, median, "×", gate, "at least", (low, high), beside))
    tell(figures, chosen.json)


if __name__ == "__main__":
    main()
