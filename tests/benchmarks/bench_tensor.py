"""Forward and backward of MLP and attention in shards, against DTensor's parallelize_module on the same weights.

    python -m tests.benchmarks.bench_tensor [--ranks 2] [--rounds 40] [--json FILE]

Plain gloo processes, nothing recorded. Channels and tokens are such that a rank computes for most of the time. In a
round each layer goes forward and backward once, in an order that turns from round to round. A figure is DTensor's time
over ours in the same round (slowest rank each time): the median over the rounds, with quartiles. Other work on the
machine widens the spread; DTensor against itself ('again') shows how far. Beside it, as a figure that other work
disturbs less: the processor time of all ranks over DTensor's, all rounds together.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from kit.topics.tensor.reference.layers import MLP, Attention
from kit.topics.tensor.reference.regions import Whole
from tests.benchmarks.figures import Figure, options, tell
from tests.gloo import world

GATE = 0.95  # our speed over DTensor's
B, T, C, H = 4, 256, 768, 12
PAIRS = {  # what is measured: what it stands beside
    "MLP": "DTensor's MLP",
    "attention": "DTensor's attention",
    "DTensor's MLP again": "DTensor's MLP",
}
held: dict[str, nn.Module] = {}  # on a rank


class DenseMLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


class DenseAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(C, C) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (layer(x).unflatten(-1, (-1, C // H)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


def by_dtensor(layer: nn.Module) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    by_row = ("down", "out")
    plan = {name: RowwiseParallel() if name in by_row else ColwiseParallel() for name, _ in layer.named_children()}
    return parallelize_module(layer, mesh, plan)


def prepare() -> float:
    """Make every layer from equal weights, run each twice; how far our outputs are from DTensor's."""
    torch.manual_seed(0)
    mlp, attention = DenseMLP(), DenseAttention()
    region = Whole()
    held["MLP"] = MLP(mlp.up, mlp.down, region)
    held["attention"] = Attention([attention.q, attention.k, attention.v], attention.out, H, region)
    torch.manual_seed(0)
    held["DTensor's MLP"], held["DTensor's attention"] = by_dtensor(DenseMLP()), by_dtensor(DenseAttention())
    held["DTensor's MLP again"] = held["DTensor's MLP"]
    for _ in range(2):
        for name in held:
            seconds(name)
    x = torch.randn(B, T, C, generator=torch.Generator().manual_seed(1))
    pairs = [(held[name](x), held[f"DTensor's {name}"](x)) for name in ("MLP", "attention")]
    return max(float((ours - theirs).detach().abs().max()) for ours, theirs in pairs)


def seconds(name: str) -> tuple[float, float]:
    """What a forward and a backward pass took on this rank, from one barrier to the next: by the clock, and of the
    processor.
    """
    layer: Any = held[name]
    x = torch.randn(B, T, C, requires_grad=True)
    layer.zero_grad()
    dist.barrier()
    began, worked = time.perf_counter(), time.process_time()
    layer(x).square().mean().backward()
    dist.barrier()
    return time.perf_counter() - began, time.process_time() - worked


def one_round(turn: int) -> dict[str, tuple[float, float]]:
    names = list(held)
    order = names[turn % len(names) :] + names[: turn % len(names)]
    return {name: seconds(name) for name in order}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=40)
    chosen = parser.parse_args()
    with world(chosen.ranks) as ranks:
        apart = max(ranks.run(prepare))
        if apart > 1e-5:
            raise SystemExit(f"the layers do not compute the same, they are {apart:.1e} apart: no speed is measured")
        taken = [ranks.run(one_round, turn) for turn in range(chosen.rounds)]
    names = list(taken[0][0])
    slowest = [{name: max(rank[name][0] for rank in by_rank) for name in names} for by_rank in taken]
    worked = {name: sum(rank[name][1] for by_rank in taken for rank in by_rank) for name in names}
    figures = []
    for name, theirs in PAIRS.items():
        low, median, high = statistics.quantiles([took[theirs] / took[name] for took in slowest], n=4)
        took = statistics.median(took[theirs] for took in slowest)
        beside = (
            f"{theirs}, {took * 1e3:.0f} ms; quartiles of {chosen.rounds} rounds;"
            f" processor time {worked[name] / worked[theirs]:.3f} x"
        )
        what = f"{name}: forward and backward, B {B}, T {T}, C {C}, {chosen.ranks} ranks"
        gate = None if name.endswith("again") else GATE
        figures.append(Figure(what, median, "×", gate, "at least", (low, high), beside))
    tell(figures, chosen.json)


if __name__ == "__main__":
    main()
