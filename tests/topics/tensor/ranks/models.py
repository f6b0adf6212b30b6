"""What tensor parallelism is compared on: run on every rank, beside the whole model and beside torch's DTensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from kit.gpt.model import GPT, GPTConfig
from kit.topics.tensor.reference import by_hand
from kit.topics.tensor.reference.gpt import TensorParallelGPT
from kit.topics.tensor.reference.layers import MLP, Attention, Norm, whole
from kit.topics.tensor.reference.regions import ByPosition, Region, Whole

Tensor = torch.Tensor
Found = dict[str, Tensor]  # outputs and gradients, whole, by name
B, T, C, H, V, L = 3, 8, 16, 4, 24, 2
SEED = 5
ORDERS = {"whole": Whole, "by position": ByPosition}


def apart(model: nn.Module) -> nn.Module:
    """In float64, with biases and norms of their own, so that every gradient matters."""
    model.double()
    with torch.no_grad():
        for p in model.parameters():
            p += 0.1 * torch.randn_like(p)
    return model


def gpt_of(tied: bool, bias: bool = True, seed: int = 0) -> GPT:
    torch.manual_seed(seed)
    config = GPTConfig(n_layer=L, n_head=H, n_embd=C, block_size=T + 1, vocab_size=V, tied=tied, bias=bias)
    model = GPT(config, device="cpu")
    apart(model)
    return model


def batch() -> tuple[Tensor, Tensor]:
    tokens = torch.randint(V, (B, T + 1), generator=torch.Generator().manual_seed(1))
    return tokens[:, :-1], tokens[:, 1:]


def serial_gpt(tied: bool, bias: bool = True, seed: int = 0) -> Found:
    """The whole model in one process."""
    model = gpt_of(tied, bias, seed)
    logits, _ = model(*batch())
    loss = F.cross_entropy(logits.flatten(0, 1).float(), batch()[1].flatten())
    loss.backward()
    found = {"loss": loss.detach(), "logits": logits.detach()}
    for name, p in model.named_parameters():
        assert p.grad is not None
        if ".qkv." in name:
            found |= {name.replace("qkv", part): g for part, g in zip("qkv", p.grad.chunk(3), strict=True)}
        else:
            found["positions" if name == "positions.weight" else name] = p.grad
    return found


def parallel_gpt(order: str, tied: bool, bias: bool = True) -> Found:
    """In shards; what it returns is put together."""
    model = gpt_of(tied, bias)
    parallel = TensorParallelGPT(model, sequence=order == "by position")
    logits, loss = parallel(*batch())
    assert loss is not None
    loss.backward()
    return {
        "loss": loss.detach(),
        "logits": by_hand.all_gather(logits.detach(), 2),
        **dict(parallel.gradients()),
    }


def step_of_gpt(order: str, bias: bool) -> None:
    """A forward and a backward pass alone, for their traffic."""
    model = TensorParallelGPT(gpt_of(tied=True, bias=bias), sequence=order == "by position")
    loss = model(*batch())[1]
    assert loss is not None
    loss.backward()


# --------------------------------------------------------------------------- attention and MLP, beside DTensor's


class Dense(nn.Module):
    """Attention with K heads of keys and values, an MLP, or one with a norm, as plain torch. (B, T, C) -> (B, T, C)."""

    def __init__(self, kind: str, key_heads: int = H) -> None:
        super().__init__()
        self.kind, self.D = kind, C // H
        if kind == "normed mlp":
            self.norm = nn.LayerNorm(C)
        if kind.endswith("mlp"):
            self.up, self.down = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)
        else:
            self.q, self.out = nn.Linear(C, C), nn.Linear(C, C)
            self.k, self.v = nn.Linear(C, key_heads * self.D), nn.Linear(C, key_heads * self.D)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind.endswith("mlp"):
            return self.down(F.gelu(self.up(self.norm(x) if self.kind == "normed mlp" else x)))
        q, k, v = (layer(x).unflatten(-1, (-1, self.D)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape != k.shape)
        return self.out(y.transpose(1, 2).flatten(2))


def dense(kind: str, key_heads: int = H) -> tuple[Dense, Tensor]:
    """A layer and its input."""
    torch.manual_seed(SEED)
    layer = Dense(kind, key_heads)
    apart(layer)
    return layer, torch.randn(B, T, C, dtype=torch.float64)


def square(y: Tensor, weights: Tensor) -> Tensor:
    """A loss whose gradient differs everywhere: that of a sum would be 1 on every rank."""
    return (y**2 * weights).sum()


WEIGHTS = torch.linspace(1, 2, B * T * C, dtype=torch.float64).view(B, T, C)


def serial_layer(kind: str, key_heads: int = H) -> Found:
    layer, x = dense(kind, key_heads)
    y = layer(x.requires_grad_())
    square(y, WEIGHTS).backward()
    return {"y": y.detach(), "dx": grad(x), **{name: grad(p) for name, p in layer.named_parameters()}}


def parallel_layer(kind: str, order: str, key_heads: int = H) -> Found:
    layer, x = dense(kind, key_heads)
    region: Region = ORDERS[order]()
    made: nn.Module
    if kind.endswith("mlp"):
        made = MLP(layer.up, layer.down, region)
        if kind == "normed mlp":
            made = nn.Sequential(Norm(layer.norm, region), made)
    else:
        made = Attention([layer.q, layer.k, layer.v], layer.out, H, region, key_heads)
    x.requires_grad_()
    y = made(region.part(x))  # of x this rank's positions, or all of it
    square(y, region.part(WEIGHTS)).backward()
    if order == "by position":
        y = by_hand.all_gather(y.detach(), 1)
        dist.all_reduce(grad(x))  # each rank has the gradient of its own positions
    names = {name: name.replace("0.", "norm.").replace("1.", "") for name, _ in made.named_parameters()}
    gradients = {names[name]: whole(p, grad(p)) for name, p in made.named_parameters()}
    return {"y": y.detach(), "dx": grad(x), **gradients}


def by_dtensor(kind: str) -> Found:
    """torch's own: parallelize_module with its column and row styles, and by position where there is a norm."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        ParallelStyle,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    layer, x = dense(kind)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    by_row = ("down", "out")
    plan: dict[str, ParallelStyle] = {
        name: RowwiseParallel() if name in by_row else ColwiseParallel() for name, _ in layer.named_children()
    }
    if kind == "normed mlp":
        by_position = Shard(1)
        cut = PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=by_position)
        plan |= {"": cut, "norm": SequenceParallel(), "up": ColwiseParallel(input_layouts=by_position)}
    parallelize_module(layer, mesh, plan)
    y = layer(x.requires_grad_())
    square(y, WEIGHTS).backward()
    gradients = {name: grad(p) for name, p in layer.named_parameters()}
    assert all(isinstance(g, DTensor) for g in gradients.values())
    return {"y": y.detach(), "dx": grad(x), **{name: g.full_tensor() for name, g in gradients.items()}}  # type: ignore[attr-defined]


def all_layers(order: str) -> dict[str, Found]:
    """Every layer that this many ranks can share."""
    n = dist.get_world_size()
    found = {kind: parallel_layer(kind, order) for kind in ("mlp", "normed mlp")}
    for key_heads in (4, 2, 1):
        found[f"attention, {key_heads}"] = parallel_layer("attention", order, key_heads)
    assert n in (1, 2, 4)
    return found


def every_dtensor() -> dict[str, Found]:
    return {kind: by_dtensor(kind) for kind in ("mlp", "normed mlp", "attention")}


def functions_by_hand() -> Found:
    """The MLP and the attention of by_hand, which take shards, from the layers that stand above; and what a rank finds
    without the others.
    """
    mlp, x = dense("mlp")
    shards = mlp_shards(mlp)
    y = by_hand.mlp(x.requires_grad_(), *shards)
    square(y, WEIGHTS).backward()
    alone = x.detach().clone().requires_grad_()
    up, up_bias, down, down_bias = shards
    term = F.linear(F.gelu(F.linear(alone, up, up_bias)), down, down_bias)
    square(term, WEIGHTS).backward()
    attention, z = dense("attention")
    parts = [by_hand.shard(getattr(attention, name).weight, 0) for name in "qkv"]
    out = by_hand.shard(attention.out.weight, 1)
    return {
        "mlp": y.detach(),
        "dx": grad(x),
        "mlp alone": term.detach(),
        "dx alone": grad(alone),
        "attention": by_hand.attention(z, *parts, out, H // dist.get_world_size()),
    }


def mlp_shards(layer: Dense) -> list[Tensor]:
    return [
        by_hand.shard(layer.up.weight, 0),
        by_hand.shard(layer.up.bias, 0),
        by_hand.shard(layer.down.weight, 1),
        layer.down.bias.detach().clone(),
    ]


# ------------------------------------------------------------------------------------------------ random numbers


def dropped(order: str) -> Found:
    """What dropout leaves of ones: outside and inside, in two calls, and what torch's own generator draws then."""
    torch.manual_seed(7)  # the same on every rank
    region: Region = ORDERS[order](seed=3)
    ones, found = torch.ones(64, 64), {}
    for call in ("first", "second"):
        with region.draws.on(ones.device):
            found[f"outside {call}"] = F.dropout(ones, 0.25)
        with region.own.on(ones.device):
            found[f"inside {call}"] = F.dropout(ones, 0.25)
    return {**found, "torch": torch.rand(4)}


def trained_with_dropout(order: str) -> list[float]:
    """Losses of a GPT with dropout: two models made alike lose alike."""
    config = GPTConfig(n_layer=1, n_head=H, n_embd=C, block_size=T, vocab_size=V, dropout=0.2)
    losses = []
    for _ in range(2):
        torch.manual_seed(0)
        model = TensorParallelGPT(GPT(config, device="cpu"), sequence=order == "by position", seed=3)
        for _ in range(2):
            loss = model(*batch())[1]
            assert loss is not None
            losses.append(loss.item())
    return losses


# ---------------------------------------------------------------------------------------------------- groups, faults


def of_two_groups() -> list[Found]:
    """Ranks 0 and 1, 2 and 3: each pair a model of its own, with other weights."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    pair = dist.get_rank() // 2
    model = TensorParallelGPT(gpt_of(True, seed=pair), pairs[pair])
    logits, loss = model(*batch())
    assert loss is not None
    loss.backward()
    gathered = by_hand.all_gather(logits.detach(), 2, pairs[pair])
    return [{"loss": loss.detach(), "logits": gathered, **dict(model.gradients())}]


def refusals() -> list[str]:
    """What is said to shapes that do not fit."""

    def gpt(**sizes: int) -> Callable[[], Any]:
        settings = {"n_layer": 1, "n_head": 4, "n_embd": 16, "block_size": 8, "vocab_size": 24, **sizes}
        return lambda: TensorParallelGPT(GPT(GPTConfig(**settings), device="cpu"))

    def attention(heads: int, key_heads: int) -> Callable[[], Any]:
        q, kv = nn.Linear(24, 24), nn.Linear(24, 24 // heads * key_heads)
        return lambda: Attention([q, kv, kv], nn.Linear(24, 24), heads, Whole(), key_heads)

    short = TensorParallelGPT(GPT(GPTConfig(1, 4, 16, 8, 24), device="cpu"), sequence=True)
    cases: list[Callable[[], Any]] = [
        gpt(n_head=2),
        gpt(vocab_size=25),
        attention(12, 3),
        attention(8, 6),
        lambda: short(torch.zeros(1, 6, dtype=torch.int64)),
        lambda: by_hand.shard(torch.zeros(3, 5), 1),
    ]
    told = []
    for case in cases:
        try:
            case()
        except ValueError as error:
            told.append(str(error))
        else:
            told.append("")
    return told


def too_few_heads() -> None:
    """What a person would write, with nobody to catch it."""
    TensorParallelGPT(GPT(GPTConfig(1, 2, 16, 8, 24), device="cpu"))


def grad(x: Tensor) -> Tensor:
    assert x.grad is not None
    return x.grad
