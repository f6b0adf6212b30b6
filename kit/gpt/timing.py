"""How fast ranks train: a function to be run on each of them, which times its steps."""

from __future__ import annotations

from time import perf_counter

import torch

from kit.gpt.data import Batch
from kit.gpt.model import GPT, GPTConfig
from kit.gpt.train import Wrap, training
from kit.parallel.ddp import BucketedDDP


def timed_training(
    batch: int,
    config: GPTConfig,
    steps: int = 5,
    warm_up: int = 2,
    wrap: Wrap | None = BucketedDDP,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> tuple[int, list[float], int]:
    """Trains on this rank with `batch` windows of a whole block in each step, tokens drawn at random.

    Returns (tokens of a step on this rank, seconds of each of `steps`, threads it computes with). `warm_up` steps come
    before, untimed. wrap: what averages gradients over the ranks; None: nothing does, each rank trains alone. Reading
    is left out: the tokens are there before the clock starts.
    """
    draw = torch.Generator().manual_seed(seed)
    shape = (batch, config.block_size + 1)
    pairs = torch.randint(config.vocab_size, shape, generator=draw, device="cpu").to(device)  # (B, T + 1)
    one: Batch = (pairs[:, :-1], pairs[:, 1:])  # 2 x (B, T)
    going = training(GPT(config, device), iter([one] * (warm_up + steps)), steps=warm_up + steps, rate=1e-3, wrap=wrap)
    for _ in range(warm_up):
        next(going)
    times = []
    for _ in range(steps):
        began = perf_counter()
        next(going)  # its loss and norm are numbers already, so a device has finished with it
        times.append(perf_counter() - began)
    return batch * config.block_size, times, torch.get_num_threads()
