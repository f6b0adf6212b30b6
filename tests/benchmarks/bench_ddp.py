"""Tokens per second of the data-parallel wrappers against torch's DistributedDataParallel on the same small GPT.

    python -m tests.benchmarks.bench_ddp [--ranks 2] [--rounds 40] [--steps 2] [--micro-batches 1] [--json FILE]

Plain gloo processes, nothing recorded. Every rank holds one copy of the model for each wrapper, with the same weights,
batch, optimizer and bucket sizes; in a round each wrapper trains for some steps, in an order that turns from round to
round. The figure is the wrapper's tokens per second over torch's of the same round (slowest rank each time): the
median over the rounds, with quartiles. Other work on the machine widens the spread; torch against
itself ('torch again') shows how far. Beside it, as a figure that other work disturbs less: the processor time of all
ranks over torch's, all rounds together.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
import torch.distributed as dist

from kit.gpt.model import GPT, GPTConfig
from kit.topics.data_parallel.reference import AveragedAfterBackward, BucketedDDP, HookedDDP
from tests.benchmarks.figures import Figure, options, tell
from tests.gloo import world

GATE = 0.95  # tokens per second of BucketedDDP over torch's
B = 12
held: dict[str, Any] = {}  # on a rank: name -> (wrapped model, optimizer)


def prepare(config: GPTConfig) -> int:
    """Wrap one copy of the model for each name, and take two steps with it. Returns P."""
    from torch.nn.parallel import DistributedDataParallel

    wrappers = {
        "torch": DistributedDataParallel,
        "torch again": DistributedDataParallel,
        "BucketedDDP": BucketedDDP,
        "HookedDDP": HookedDDP,
        "AveragedAfterBackward": AveragedAfterBackward,
    }
    for name, wrapper in wrappers.items():
        torch.manual_seed(0)
        model = wrapper(GPT(config))
        held[name] = model, torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        seconds(name, 2, 1)
    return GPT(config).count()


def seconds(name: str, steps: int, micro_batches: int) -> tuple[float, float]:
    """What the steps took on this rank, from one barrier to the next: by the clock, and of the processor."""
    model, optimizer = held[name]
    config = model.module.config
    tokens = torch.randint(config.vocab_size, (B, config.block_size + 1))  # (B, T + 1)
    dist.barrier()
    began, worked = time.perf_counter(), time.process_time()
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(micro_batches - 1):
            with model.no_sync():
                _, loss = model(tokens[:, :-1], tokens[:, 1:])
                (loss / micro_batches).backward()
        _, loss = model(tokens[:, :-1], tokens[:, 1:])
        (loss / micro_batches).backward()
        optimizer.step()
    dist.barrier()
    return time.perf_counter() - began, time.process_time() - worked


def one_round(turn: int, steps: int, micro_batches: int) -> dict[str, tuple[float, float]]:
    names = list(held)
    order = names[turn % len(names) :] + names[: turn % len(names)]
    return {name: seconds(name, steps, micro_batches) for name in order}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=1)
    chosen = parser.parse_args()
    config = GPTConfig.named("cpu")
    with world(chosen.ranks) as ranks:
        count = ranks.run(prepare, config)[0]
        turns = range(chosen.rounds)
        taken = [ranks.run(one_round, turn, chosen.steps, chosen.micro_batches) for turn in turns]
    names = list(taken[0][0])
    slowest = [{name: max(rank[name][0] for rank in by_rank) for name in names} for by_rank in taken]
    worked = {name: sum(rank[name][1] for by_rank in taken for rank in by_rank) for name in names}
    tokens = chosen.ranks * B * config.block_size * chosen.micro_batches * chosen.steps
    speed = tokens / statistics.median(took["torch"] for took in slowest)
    what = f"tokens/s, GPT of {count / 1e6:.2f} M, {chosen.ranks} ranks"
    what += f", {chosen.micro_batches} micro-batches" if chosen.micro_batches > 1 else ""
    figures = []
    for name in names[1:]:
        low, median, high = statistics.quantiles([took["torch"] / took[name] for took in slowest], n=4)
        beside = (
            f"DistributedDataParallel, {speed:.0f} tokens/s; quartiles of {chosen.rounds} rounds;"
            f" processor time {worked[name] / worked['torch']:.3f} x"
        )
        gate = GATE if name == "BucketedDDP" else None
        figures.append(Figure(f"{name}: {what}", median, "×", gate, "at least", (low, high), beside))
    tell(figures, chosen.json)


if __name__ == "__main__":
    main()
