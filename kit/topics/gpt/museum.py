"""Three trainings that went wrong as real ones did, each beside the one that it was meant to be.

A: a layer in tensor-parallel shards. B: replicas that average their gradients. C: replicas that accumulate.

A layer of H hidden channels, relu(x up) down, is trained towards x. Every exhibit runs, and its loss falls. What is
wrong is not said here by name: hashes tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from kit.gpt.hashing import hashes

Tensor = torch.Tensor
C, H, ROWS, MICRO_BATCHES, STEPS, LR = 8, 24, 16, 12, 6, 0.5
EXHIBITS = ("A", "B", "C")


@dataclass(frozen=True)
class Visit:
    """What one rank has to show. moments: hashes of its weights, before the first step and after each."""

    losses: tuple[float, ...]
    moments: tuple[Mapping[str, str], ...]


def visit(exhibit: str, seed: int = 0, meant: bool = False) -> Visit:
    """One of them on all ranks; every rank calls. meant: without what is wrong with it.

    Raises ValueError for one that is not there.
    """
    if exhibit not in EXHIBITS:
        raise ValueError(f"no exhibit is called {exhibit!r}: choose one of {', '.join(EXHIBITS)}")
    return {"A": _in_shards, "B": _replicas, "C": _accumulated}[exhibit](seed, meant)


def _in_shards(seed: int, meant: bool) -> Visit:
    n, r = dist.get_world_size(), dist.get_rank()
    own = torch.Generator(device="cpu").manual_seed(seed + (1 + r if meant else 1))
    weights = _drawn(own, hidden=len(range(r, H, n)))  # this rank's channels
    return _trained(weights, range(MICRO_BATCHES), MICRO_BATCHES, sharded=True)


def _replicas(seed: int, meant: bool) -> Visit:
    n, r = dist.get_world_size(), dist.get_rank()
    own = torch.Generator(device="cpu").manual_seed(seed if meant else seed + r)
    return _trained(_drawn(own), range(r, MICRO_BATCHES, n), MICRO_BATCHES)


def _accumulated(seed: int, meant: bool) -> Visit:
    n, r = dist.get_world_size(), dist.get_rank()
    weights = _drawn(torch.Generator(device="cpu").manual_seed(seed))
    return _trained(weights, range(r, MICRO_BATCHES, n), MICRO_BATCHES if meant else n)


def _drawn(generator: torch.Generator, hidden: int = H) -> dict[str, Tensor]:
    return {
        "up": torch.randn(C, hidden, generator=generator, device="cpu").mul(0.2).to(torch.get_default_device()),
        "down": torch.randn(hidden, C, generator=generator, device="cpu").mul(0.2).to(torch.get_default_device()),
    }


def _trained(weights: dict[str, Tensor], parts: Sequence[int], shares: int, sharded: bool = False) -> Visit:
    """parts: micro-batches of this rank; shares: by what the sum of all ranks' gradients is divided."""
    losses, seen = [], [hashes(weights)]
    for _ in range(STEPS):
        gradients = {name: torch.zeros_like(w) for name, w in weights.items()}
        total = torch.zeros(1)
        for part in parts:
            x = _data(part)  # (B, C)
            h = x @ weights["up"]  # (B, H), or this rank's channels of it
            y = h.relu() @ weights["down"]  # (B, C), or this rank's part of the sum
            if sharded:
                dist.all_reduce(y)
            total += (y - x).square().mean()
            dy = 2 * (y - x) / y.numel()  # (B, C)
            dh = (dy @ weights["down"].T) * (h > 0)  # (B, H)
            gradients["down"] += h.relu().T @ dy
            gradients["up"] += x.T @ dh
        if not sharded:
            for gradient in (*gradients.values(), total):
                dist.all_reduce(gradient)
        for name, gradient in gradients.items():
            weights[name] -= LR * gradient / shares
        losses.append(float(total) / MICRO_BATCHES)
        seen.append(hashes(weights))
    return Visit(tuple(losses), tuple(seen))


def _data(part: int) -> Tensor:
    generator = torch.Generator(device="cpu").manual_seed(part)
    return torch.randn(ROWS, C, generator=generator, device="cpu").to(torch.get_default_device())  # (B, C)
