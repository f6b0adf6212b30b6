"""Programs for sessions with random faults, each with the same numbers from a serial run: exact, in whole numbers.

Every one takes `rounds`, `pace` (seconds that each round sleeps, so that a fault finds it under way) and `delay`: None,
or (rank, round, seconds) for a rank that comes late once.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from kit.topics.collectives.reference import ring_all_reduce, tree_all_reduce

Delay = tuple[int, int, float] | None
MOST = 1009  # numbers stay below: sums of them are exact in any order


def linger(i: int, pace: float, delay: Delay) -> None:
    time.sleep(pace)
    if delay is not None and delay[:2] == (dist.get_rank(), i):
        time.sleep(delay[2])


def ring(rounds: int, pace: float, delay: Delay) -> torch.Tensor:
    x = torch.arange(12.0) * (dist.get_rank() + 1)
    for i in range(rounds):
        linger(i, pace, delay)
        x = (ring_all_reduce(x) + dist.get_rank()) % MOST
    return x


def tree(rounds: int, pace: float, delay: Delay) -> torch.Tensor:
    x = torch.arange(12.0) * (dist.get_rank() + 1)
    for i in range(rounds):
        linger(i, pace, delay)
        x = (tree_all_reduce(x) + dist.get_rank()) % MOST
    return x


def pairs(rounds: int, pace: float, delay: Delay) -> torch.Tensor:
    """Ranks 0 and 1, 2 and 3 talk; a last one without a partner talks to nobody."""
    r, n = dist.get_rank(), dist.get_world_size()
    x = torch.arange(12.0) * (r + 1)
    for i in range(rounds):
        linger(i, pace, delay)
        partner, inbox = r ^ 1, torch.zeros(12)
        if partner < n and r < partner:
            dist.send(x, partner)
            dist.recv(inbox, partner)
        elif partner < n:
            dist.recv(inbox, partner)
            dist.send(x, partner)
        x = (x + 2 * inbox) % MOST
    return x


def loop(rounds: int, pace: float, delay: Delay) -> torch.Tensor:
    """As data parallelism does it: all gradients are on their way before the first is waited for."""
    weights = [torch.full((4,), float(k)) for k in (1, 2, 3)]
    for i in range(rounds):
        linger(i, pace, delay)
        gradients = [w * (dist.get_rank() + 1) for w in weights]
        works = [dist.all_reduce(g, async_op=True) for g in gradients]
        for w, g, work in zip(weights, gradients, works, strict=True):
            work.wait()
            w.add_(g).remainder_(MOST)
    return torch.cat(weights)


def plain() -> float:
    x = torch.ones(1)
    dist.all_reduce(x)
    return float(x)


PROGRAMS: dict[str, Callable[[int, float, Delay], torch.Tensor]] = {
    "ring": ring,
    "tree": tree,
    "pairs": pairs,
    "loop": loop,
}


def serial(name: str, n: int, rounds: int) -> list[torch.Tensor]:
    """What each of n ranks must return."""
    if name == "loop":
        weights = torch.tensor([1.0] * 4 + [2.0] * 4 + [3.0] * 4)
        for _ in range(rounds):
            weights = (weights + weights * (n * (n + 1) // 2)) % MOST
        return [weights] * n
    xs = [torch.arange(12.0) * (r + 1) for r in range(n)]
    for _ in range(rounds):
        if name == "pairs":
            partners = [xs[r ^ 1] if r ^ 1 < n else torch.zeros(12) for r in range(n)]
            xs = [(x + 2 * partner) % MOST for x, partner in zip(xs, partners, strict=True)]
        else:
            xs = [(torch.stack(xs).sum(0) + r) % MOST for r in range(n)]
    return xs
