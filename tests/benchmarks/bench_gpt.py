"""Tokens per second of the trainer on one device: against a plain loop over the same model, and a minimal trainer.

    python -m tests.benchmarks.bench_gpt [--rounds 40] [--steps 4] [--no-compile] [--json FILE]

nanoGPT's size for a CPU: 4 layers, 4 heads, 128 channels, block 64, batch 12, no dropout and no biases, 65 tokens. All
trainers live in this one process and take turns, some steps each, in an order that turns from round to round; a figure
is the ratio of the times of one round, the median over the rounds, with quartiles. Other work on the machine widens the
spread: the plain loop against itself ('plain again') shows how far. Beside each ratio, as a figure that other
work disturbs less: the same of processor time, all rounds together.

The plain loop trains the kit's own GPT on batches that lie ready, with the same optimizer, clipping and rates, and
nothing else. The minimal trainer is independent of the kit: a GPT as one would write it in a hundred lines, windows
drawn anew for each step from a memory-mapped file, torch's AdamW as it comes.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count, cycle, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from kit.gpt.feed import Feed
from kit.gpt.model import GPT, GPTConfig
from kit.gpt.recipe import Recipe
from kit.gpt.trainer import Trainer
from kit.topics.gpt.reference import Adam, Layout
from kit.topics.gpt.reference.parallelize import Extras
from kit.topics.gpt.run import lay_out
from tests.benchmarks.figures import Figure, options, tell

SIZES = GPTConfig.named("cpu")
L, H, C, T, V, B = SIZES.n_layer, SIZES.n_head, SIZES.n_embd, SIZES.block_size, SIZES.vocab_size, 12
RECIPE = Recipe(steps=1_000_000, batch=B)
SAME, INDEPENDENT = 0.98, 1.0  # gates
Steps = Iterator[float]  # a loss for each step that is asked for


def text() -> np.ndarray:
    return np.random.default_rng(0).integers(V, size=500_000).astype(np.uint16)


def of_the_kit(compiled: bool) -> Steps:
    torch.manual_seed(0)
    laid_out = lay_out(GPT(SIZES), Layout(), RECIPE, Extras(compile="inductor" if compiled else ""))
    return (step.loss for step in Trainer(laid_out, RECIPE, Feed(torch.from_numpy(text().astype(np.int64)), T)))


def plain(compiled: bool) -> Steps:
    torch.manual_seed(0)
    model = GPT(SIZES)
    adam = Adam().of(model)
    if compiled:
        model.compile()
    feed = Feed(torch.from_numpy(text().astype(np.int64)), T)
    ready = cycle([feed.micro_batches(B * k, B, B)[0] for k in range(100)])
    for number in count():
        tokens, targets = next(ready)
        _, loss = model(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in adam.param_groups:
            group["lr"] = RECIPE.rate_of(number)
        adam.step()
        adam.zero_grad()
        yield loss.item()


class MinimalBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before_mixing, self.before_thinking = nn.LayerNorm(C, bias=False), nn.LayerNorm(C, bias=False)
        self.ask, self.answer = nn.Linear(C, 3 * C, bias=False), nn.Linear(C, C, bias=False)
        self.think = nn.Sequential(nn.Linear(C, 4 * C, bias=False), nn.GELU(), nn.Linear(4 * C, C, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        q, k, v = self.ask(self.before_mixing(x)).view(b, t, 3, H, C // H).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.answer(mixed.transpose(1, 2).reshape(b, t, C))
        return x + self.think(self.before_thinking(x))


class MinimalGPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.what, self.where = nn.Embedding(V, C), nn.Embedding(T, C)
        self.layers = nn.Sequential(*(MinimalBlock() for _ in range(L)))
        self.last = nn.LayerNorm(C, bias=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.what(tokens) + self.where(torch.arange(tokens.shape[1]))
        logits = F.linear(self.last(self.layers(x)), self.what.weight)
        return F.cross_entropy(logits.view(-1, V), targets.reshape(-1))


def minimal(compiled: bool, file: Path) -> Steps:
    torch.manual_seed(0)
    model: nn.Module = MinimalGPT()
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))
    called = torch.compile(model) if compiled else model
    for number in count():
        tokens = np.memmap(file, np.uint16, "r")
        starts = torch.randint(len(tokens) - T, (B,)).tolist()
        x = torch.stack([torch.from_numpy(tokens[at : at + T].astype(np.int64)) for at in starts])
        y = torch.stack([torch.from_numpy(tokens[at + 1 : at + 1 + T].astype(np.int64)) for at in starts])
        loss = called(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in adam.param_groups:
            group["lr"] = RECIPE.rate_of(number)
        adam.step()
        adam.zero_grad(set_to_none=True)
        yield loss.item()


class Took(NamedTuple):
    seconds: float
    of_processor: float


def took(steps: Steps, number: int) -> Took:
    began, worked = time.perf_counter(), time.process_time()
    for _ in islice(steps, number):
        pass
    return Took(time.perf_counter() - began, time.process_time() - worked)


Round = dict[str, Took]


def measured(trainers: dict[str, Steps], rounds: int, steps: int) -> list[Round]:
    """Of each round, what each trainer took for its steps."""
    for each in trainers.values():
        took(each, 5)
    names, taken = list(trainers), []
    for turn in range(rounds):
        k = turn % len(names)
        taken.append({name: took(trainers[name], steps) for name in names[k:] + names[:k]})
    return taken


def figures(mode: str, taken: list[Round], steps: int) -> Iterator[Figure]:
    speed = {name: B * T * steps / statistics.median(each[name].seconds for each in taken) for name in taken[0]}
    worked = {name: sum(each[name].of_processor for each in taken) for name in taken[0]}

    def ratio(what: str, of: str, to: str, gate: float | None) -> Figure:
        low, median, high = statistics.quantiles([each[to].seconds / each[of].seconds for each in taken], n=4)
        beside = f"{to}: {speed[to]:.0f} tokens/s; quartiles of {len(taken)} rounds of {steps} steps"
        beside += f"; by processor time {worked[to] / worked[of]:.3f} ×"
        return Figure(f"{what}, {mode}", median, "×", gate, "at least", (low, high), beside)

    yield ratio("tokens/s of the trainer on one device", "trainer", "plain", SAME)
    yield ratio("tokens/s of the trainer on one device", "trainer", "minimal", INDEPENDENT)
    yield ratio("plain again", "plain again", "plain", None)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--no-compile", action="store_true", help="eager alone: compiling takes a minute")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="that torch computes with")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    found: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokens.bin"
        text().tofile(file)
        for mode in ("eager",) if chosen.no_compile else ("eager", "compiled"):
            make: dict[str, Callable[[], Steps]] = {
                "trainer": lambda on=mode == "compiled": of_the_kit(on),
                "plain": lambda on=mode == "compiled": plain(on),
                "plain again": lambda on=mode == "compiled": plain(on),
                "minimal": lambda on=mode == "compiled": minimal(on, file),
            }
            trainers = {name: made() for name, made in make.items()}
            found += figures(mode, measured(trainers, chosen.rounds, chosen.steps), chosen.steps)
    tell(found, chosen.json)


if __name__ == "__main__":
    main()
