"""Layers of which each rank holds a shard, made from whole ones.

The whole layer is drawn first, from the same seed on every rank, and cut then: so n ranks hold the matrix that one
would. A shard drawn by itself from a seed that all ranks share is the same shard n times. A parameter that is cut says
along which dimension, in `cut`; `whole` puts it together.

Letters: B samples, T positions, C channels, F features, H heads of D channels, K of keys and values, V vocabulary,
n ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from kit.topics.data_parallel.reference.built_in import Group
from kit.topics.tensor.reference.by_hand import all_gather, check_divides, copy_in, shard, sum_out
from kit.topics.tensor.reference.regions import Region

Tensor = torch.Tensor

# The shapes stand in one column.
# fmt: off


class ColumnLinear(nn.Module):
    """Cut by outputs: weight (F/n, C), bias (F/n,)."""

    def __init__(self, linear: nn.Linear, group: Group = None) -> None:
        super().__init__()
        self.weight = cut(linear.weight, 0, group)
        self.bias = None if linear.bias is None else cut(linear.bias, 0, group)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)               # (B, T, C) -> (B, T, F/n)


class RowLinear(nn.Module):
    """Cut by inputs: weight (C, F/n). The bias (C,) is whole, and added once, outside."""

    def __init__(self, linear: nn.Linear, region: Region) -> None:
        super().__init__()
        self.region = region
        self.weight = cut(linear.weight, 1, region.group)
        self.bias = None if linear.bias is None else held_by_all(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        y = self.region.leave(F.linear(x, self.weight))          # (B, T, F/n) -> (B, T, C)
        return y if self.bias is None else y + self.region.use(self.bias)


class MLP(nn.Module):
    """up: C -> F, by columns; down: F -> C, by rows. (B, T, C) -> (B, T, C)."""

    def __init__(self, up: nn.Linear, down: nn.Linear, region: Region, approximate: str = "none") -> None:
        super().__init__()
        self.region, self.approximate = region, approximate
        self.up, self.down = ColumnLinear(up, region.group), RowLinear(down, region)

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(self.region.enter(x))                        # (B, T, F/n)
        y: Tensor = self.down(F.gelu(x, approximate=self.approximate))
        return y                                                 # (B, T, C)


class Attention(nn.Module):
    """Causal attention, H/n heads on each rank. (B, T, C) -> (B, T, C).

    qkv: q, C -> H D, k and v, C -> K D. out: H D -> C. Where K < n, each rank holds all of k and v, and computes the
    one head that its queries look at; gradients are summed. ValueError where heads would have to be cut.
    """

    def __init__(
        self, qkv: Sequence[nn.Linear], out: nn.Linear, heads: int, region: Region,
        key_heads: int | None = None, dropout: float = 0.0,
    ) -> None:
        super().__init__()
        n = dist.get_world_size(region.group)
        H, K = heads, key_heads or heads
        check_divides(H, n, f"attention of {H} heads, of which none is cut")
        if H % K:
            raise ValueError(f"{H} heads cannot share {K} of keys and values evenly: key_heads is a divisor of heads")
        if gcd(K, n) != min(K, n):
            raise ValueError(
                f"{n} ranks cannot share {K} heads of keys and values, nor hold copies of them evenly: one number"
                " divides the other"
            )
        self.region, self.dropout = region, dropout
        self.D = qkv[0].out_features // H
        self.q = ColumnLinear(qkv[0], region.group)
        self.k, self.v = (
            ColumnLinear(x, region.group) if n <= K else CopiedHead(x, K, region.group)
            for x in qkv[1:]
        )
        self.out = RowLinear(out, region)

    def forward(self, x: Tensor) -> Tensor:
        x = self.region.enter(x)                                 # (B, T, C)
        q, k, v = (
            layer(x).unflatten(-1, (-1, self.D)).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )                                                        # (B, H/n, T, D), 2 x (B, max(K/n, 1), T, D)
        p = self.dropout if self.training else 0.0
        with self.region.own.on(x.device):                       # other heads on each rank: other elements drop
            heads = F.scaled_dot_product_attention(
                q, k, v, dropout_p=p, is_causal=True, enable_gqa=q.shape != k.shape
            )                                                    # (B, H/n, T, D)
        y: Tensor = self.out(heads.transpose(1, 2).flatten(2))
        return y                                                 # (B, T, C)


class CopiedHead(nn.Module):
    """Fewer heads than ranks: weight (K D, C) and bias (K D,) are whole everywhere, one head of it is computed."""

    def __init__(self, linear: nn.Linear, heads: int, group: Group) -> None:
        super().__init__()
        n, r = dist.get_world_size(group), dist.get_rank(group)
        self.group, self.heads, self.mine = group, heads, r * heads // n
        self.weight = held_by_all(linear.weight)
        self.bias = None if linear.bias is None else held_by_all(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        w = copy_in(self.weight, self.group).chunk(self.heads)[self.mine]  # (D, C)
        b = None if self.bias is None else copy_in(self.bias, self.group).chunk(self.heads)[self.mine]  # (D,)
        return F.linear(x, w, b)                                 # (B, T, C) -> (B, T, D)


class Norm(nn.Module):
    """LayerNorm outside: on whatever this rank holds there."""

    def __init__(self, norm: nn.LayerNorm, region: Region) -> None:
        super().__init__()
        self.region, self.eps = region, norm.eps
        self.weight = held_by_all(norm.weight)
        self.bias = None if norm.bias is None else held_by_all(norm.bias)

    def forward(self, x: Tensor) -> Tensor:
        b = None if self.bias is None else self.region.use(self.bias)  # (C,)
        return F.layer_norm(x, self.weight.shape, self.region.use(self.weight), b, self.eps)  # shape of x


class Dropout(nn.Module):
    """Dropout outside: the same elements on every rank where all hold the same, others where each has its own."""

    def __init__(self, p: float, region: Region) -> None:
        super().__init__()
        self.region, self.p = region, p

    def forward(self, x: Tensor) -> Tensor:
        with self.region.draws.on(x.device):
            return F.dropout(x, self.p, self.training)           # shape of x


class VocabularyEmbedding(nn.Module):
    """Cut by vocabulary: weight (V/n, C). A token is a row on one rank, and zeros on all others."""

    def __init__(self, embedding: nn.Embedding, region: Region) -> None:
        super().__init__()
        V, n = embedding.num_embeddings, dist.get_world_size(region.group)
        check_divides(V, n, f"a vocabulary of {V} (add tokens that never occur)")
        self.region = region
        self.weight = cut(embedding.weight, 0, region.group)

    def forward(self, tokens: Tensor) -> Tensor:
        here, mine = own_tokens(tokens, len(self.weight), self.region.group)  # 2 x (B, T)
        x = F.embedding(mine, self.weight) * here.unsqueeze(-1)  # (B, T, C)
        return self.region.leave(x)                              # (B, T, C)


def vocabulary_loss(logits: Tensor, targets: Tensor, group: Group = None) -> Tensor:
    """Mean cross-entropy () of logits of which each rank has V/n, (B, T, V/n), against targets (B, T), in fp32.

    The logits are never gathered: three numbers for each token are. Shoeybi and others, section 3.
    """
    logits = logits.float()                                      # (B, T, V/n)
    largest = logits.detach().amax(-1)                           # (B, T)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
    logits = logits - largest.unsqueeze(-1)                      # (B, T, V/n), so that no exponential overflows
    total = sum_out(logits.exp().sum(-1), group)                 # (B, T)
    here, mine = own_tokens(targets, logits.shape[-1], group)    # 2 x (B, T)
    found = logits.gather(-1, mine.unsqueeze(-1)).squeeze(-1)    # (B, T)
    target = sum_out(found * here, group)                        # (B, T)
    return (total.log() - target).mean()                         # ()


def own_tokens(tokens: Tensor, size: int, group: Group) -> tuple[Tensor, Tensor]:
    """Which tokens this rank's `size` words hold, and at what place of them: 0 where they hold it not. 2 x (B, T)."""
    place = tokens - size * dist.get_rank(group)                 # (B, T)
    here = (0 <= place) & (place < size)                         # (B, T)
    return here, place.where(here, 0)


def cut(p: Tensor, dim: int, group: Group) -> nn.Parameter:
    """This rank's shard of a parameter."""
    kept = nn.Parameter(shard(p, dim, group))
    kept.cut = dim                                               # type: ignore[attr-defined]
    return kept


def held_by_all(p: Tensor) -> nn.Parameter:
    """A copy of a parameter that no rank may do without."""
    return nn.Parameter(p.detach().clone())


def whole(p: nn.Parameter, x: Tensor | None = None, group: Group = None) -> Tensor:
    """The parameter that p is a shard of, or what x, shaped like p, is a shard of: its gradient, for example."""
    x = p.detach() if x is None else x
    return all_gather(x, p.cut, group) if hasattr(p, "cut") else x


# fmt: on
