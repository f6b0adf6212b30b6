"""A training step by the kit's own strategies against torch's: the same model, data, recipe and ranks.

    python -m tests.benchmarks.bench_strategies [--rounds 20] [--json FILE]

Two plain gloo processes, nothing recorded. Each holds the training three times: by torch's (DistributedDataParallel,
FSDP2, DTensor, its 1F1B), by torch's again, and by ours. In a round each takes a step, in an order that turns. The
figure is torch's time over ours in the same round (slowest rank each time): the median, with quartiles. Other work on
the machine widens the spread; torch against itself ('torch again') shows how far.
"""

from __future__ import annotations

import statistics
import time

import torch
import torch.distributed as dist

from kit.gpt.feed import Feed
from kit.gpt.model import GPT, GPTConfig
from kit.gpt.recipe import Recipe
from kit.gpt.trainer import Trainer
from kit.topics.gpt.reference import Extras, Layout
from kit.topics.gpt.run import lay_out
from tests.benchmarks.figures import Figure, options, tell
from tests.gloo import world

RANKS = 2
SIZES = GPTConfig(n_layer=4, n_head=4, n_embd=128, block_size=64, vocab_size=66, bias=False)
GATES = {"ddp": 0.98, "zero3": 0.95, "tp": 0.95, "tp+sp": 0.95, "pp": 0.95}
held: dict[str, Trainer] = {}  # on a rank


def prepare(strategy: str) -> None:
    held.clear()
    torch.manual_seed(0)
    tokens = torch.randint(SIZES.vocab_size, (20_000,))  # (tokens,)
    parts = RANKS if strategy in ("ddp", "zero3") else 1
    recipe = Recipe(batch=12, total_batch=12 * 64 * 4 * parts, warm_up=1)
    for name in ("torch", "torch again", "kit"):
        torch.manual_seed(0)
        extras = Extras(built_in=name != "kit")
        laid_out = lay_out(GPT(SIZES), Layout.parse(strategy, RANKS), recipe, extras)
        held[name] = Trainer(laid_out, recipe, Feed(tokens, SIZES.block_size))
        held[name].step()
        held[name].step()


def one_round(turn: int) -> dict[str, float]:
    names, took = list(held), {}
    for name in names[turn % len(names) :] + names[: turn % len(names)]:
        dist.barrier()
        began = time.perf_counter()
        held[name].step()
        dist.barrier()
        took[name] = time.perf_counter() - began
    return took


def speeds(rounds: int) -> list[Figure]:
    figures = []
    for strategy, gate in GATES.items():
        with world(RANKS) as ranks:
            ranks.run(prepare, strategy)
            taken = [ranks.run(one_round, turn) for turn in range(rounds)]
        slowest = [{name: max(rank[name] for rank in by_rank) for name in by_rank[0]} for by_rank in taken]
        step = statistics.median(took["torch"] for took in slowest)
        for name in ("torch again", "kit"):
            low, median, high = statistics.quantiles([took["torch"] / took[name] for took in slowest], n=4)
            figures.append(
                Figure(
                    f"{name}: speed of a step, {strategy}, {RANKS} ranks",
                    median,
                    "×",
                    gate if name == "kit" else None,
                    "at least",
                    (low, high),
                    f"torch's own, {step * 1e3:.0f} ms; quartiles of {rounds} rounds",
                )
            )
    return figures


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    tell(speeds(given.rounds), given.json)


if __name__ == "__main__":
    main()
