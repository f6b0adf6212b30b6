"""What the tests of data parallel training run on every rank: small models, drawn apart on purpose, and loops."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DistributedSampler

from kit.topics.data_parallel import reference as ddp

SAMPLES = 101  # divides by no number of ranks that is tested
B = 2  # samples a rank and micro-batch
STEPS = 20
WRAPPERS: dict[str, Callable[..., Any]] = {
    "after backward": ddp.AveragedAfterBackward,
    "hooks": ddp.HookedDDP,
    "one bucket": ddp.BucketedDDP,
    "many buckets": lambda module, group=None, **options: ddp.BucketedDDP(module, group, bucket_bytes=400, **options),
}


class Words(nn.Module):
    """Scores for the next of 11 words: a tied matrix, a frozen scale and a buffer. (B,) -> (B, 11), in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.scale = nn.Parameter(1 + torch.rand(6), requires_grad=False)  # frozen
        self.hidden = nn.Linear(6, 7)
        self.out = nn.Linear(7, 6)
        self.unembed = nn.Linear(6, 11, bias=False)
        self.unembed.weight = self.embed.weight  # tied
        self.register_buffer("shift", torch.randn(6))
        self.double()

    def forward(self, word: torch.Tensor) -> torch.Tensor:
        x = self.embed(word) * self.scale + self.shift  # (B, 6)
        return self.unembed(self.out(torch.tanh(self.hidden(x))))  # (B, 11)


TRAINED = {"embed.weight": 66, "hidden.weight": 42, "hidden.bias": 7, "out.weight": 42, "out.bias": 6}  # elements
P = sum(TRAINED.values())


def torch_ddp(module: nn.Module, group: Any = None, **options: Any) -> Any:
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(module, process_group=group, **options)


def batches(rank: int, n: int, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """For ever: `size` of this rank's samples (word, next word), epoch after epoch."""
    generator = torch.Generator().manual_seed(7)
    words = torch.randint(11, (SAMPLES, 2), generator=generator)
    sampler: DistributedSampler[int] = DistributedSampler(range(SAMPLES), n, rank, seed=3, drop_last=True)
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        share = list(sampler)
        for first in range(0, len(share) - size + 1, size):
            chosen = words[share[first : first + size]]
            yield chosen[:, 0], chosen[:, 1]


def flat(tensors: Any) -> torch.Tensor:
    return torch.cat([x.detach().flatten() for x in tensors])


def state(module: nn.Module) -> torch.Tensor:
    return flat([*module.parameters(), *module.buffers()])


def train(model: Any, data: Iterator[Any], micro_batches: int, by_hand: bool = False) -> torch.Tensor:
    """The state after 20 steps. by_hand: `average_gradients` after backward, for a model that is not wrapped."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)

    def backward() -> None:
        word, following = next(data)
        (F.cross_entropy(model(word), following) / micro_batches).backward()

    for _ in range(STEPS):
        optimizer.zero_grad()
        for _ in range(micro_batches - 1):
            if hasattr(model, "no_sync"):
                with model.no_sync():
                    backward()
            else:
                backward()
        backward()
        if by_hand:
            ddp.average_gradients(model)
        optimizer.step()
    return state(model)


def every_way(micro_batches: int) -> dict[str, Any]:
    """Twenty steps with every wrapper, with torch's, by hand and not averaged at all, from states that differ by rank.

    Also what must differ before it agrees: states, and the gradients of the first batch.
    """
    r, n = dist.get_rank(), dist.get_world_size()
    found: dict[str, Any] = {}

    def fresh() -> Words:
        torch.manual_seed(1000 + r)  # another on every rank
        return Words()

    found["state before"] = state(fresh())
    model = fresh()
    word, following = next(batches(r, n, B))
    F.cross_entropy(model(word), following).backward()
    found["gradient before"] = flat(p.grad for p in model.parameters() if p.grad is not None)
    for name, wrapper in {**WRAPPERS, "torch": torch_ddp}.items():
        wrapped = wrapper(fresh())
        found[f"state after wrapping, {name}"] = state(wrapped)
        found[name] = train(wrapped, batches(r, n, B), micro_batches)
    model = fresh()
    ddp.broadcast_state(model)
    found["by hand"] = train(model, batches(r, n, B), micro_batches, by_hand=True)
    model = fresh()
    ddp.broadcast_state(model)
    found["never averaged"] = train(model, batches(r, n, B), micro_batches)
    return found


def serial(before: torch.Tensor, n: int, micro_batches: int) -> torch.Tensor:
    """The state after the same 20 steps of one process, each on the whole batch of n B micro_batches samples."""
    model = Words()
    parts = before.split([x.numel() for x in [*model.parameters(), *model.buffers()]])
    with torch.no_grad():
        for x, part in zip([*model.parameters(), *model.buffers()], parts, strict=True):
            x.copy_(part.view(x.shape))
    return train(model, batches(0, 1, n * B), micro_batches)


def one_step(name: str, micro_batches: int, keep_local: bool = True, **options: Any) -> tuple[int, int]:
    """One step of `Words` with a wrapper. Returns when backward began to average, and when its last gradient came (ns).

    keep_local: the micro-batches before the last are inside no_sync.
    """
    r, n = dist.get_rank(), dist.get_world_size()
    model, data, seen = Words(), batches(r, n, B), [0]
    model.embed.weight.register_post_accumulate_grad_hook(lambda p: seen.append(time.monotonic_ns()))  # the last
    wrapped: Any = {**WRAPPERS, "torch": torch_ddp}[name](model, **options)

    def backward() -> None:
        word, following = next(data)
        F.cross_entropy(wrapped(word), following).backward()

    for _ in range(micro_batches - 1):
        if keep_local:
            with wrapped.no_sync():
                backward()
        else:
            backward()
    word, following = next(data)
    loss = F.cross_entropy(wrapped(word), following)
    began = time.monotonic_ns()
    loss.backward()
    return began, seen[-1]


def train_anywhere(steps: int) -> list[float]:
    """torch's own wrapper around a line, other data on each rank: the sums of its parameters after `steps`."""
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        torch.manual_seed(step + dist.get_rank())
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
    return [p.sum().item() for p in model.parameters()]
