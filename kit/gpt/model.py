"""A GPT in one sitting: GPT-2's architecture, from a few thousand parameters to GPT-2 XL.

Letters: B batch, T sequence, C channels, H heads, V vocabulary, L layers. Radford and others, Language models are
unsupervised multitask learners (2019); pre-norm blocks, learnt positions, tied embeddings. The parts a pipeline or a
sharding takes apart are methods and attributes of `GPT`: `embed`, `blocks`, `head`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class GPTConfig:
    """The sizes of a GPT. Raises ValueError for sizes that do not fit together.

    `bias`: biases in linear layers and norms; `tied`: one matrix embeds tokens and turns channels back into logits;
    `gelu`: by its exact form, which is the quicker one on CPUs, or by the tanh formula that GPT-2 was trained with.
    `modern`: with the parts of `kit.gpt.modern` in the place of GPT-2's; `kit.gpt.modern.made` makes either.
    """

    n_layer: int  # L
    n_head: int  # H
    n_embd: int  # C
    block_size: int  # the longest T
    vocab_size: int  # V
    dropout: float = 0.0
    bias: bool = True
    tied: bool = True
    gelu: Literal["exact", "tanh"] = "exact"
    modern: bool = False

    def __post_init__(self) -> None:
        for name in ("n_layer", "n_head", "n_embd", "block_size", "vocab_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if self.n_embd % self.n_head:
            raise ValueError(f"{self.n_embd} channels do not divide by {self.n_head} heads: make n_embd a multiple")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}: choose at least 0 and less than 1")
        if self.gelu not in ("exact", "tanh"):
            raise ValueError(f"gelu is {self.gelu!r}: choose 'exact' or 'tanh'")

    @staticmethod
    def named(name: str, **changes: Any) -> GPTConfig:
        """A well-known size, with `changes` to its fields. Raises ValueError for an unknown name."""
        if name not in _NAMED:
            raise ValueError(f"no GPT is named {name!r}: choose one of {', '.join(_NAMED)}")
        return GPTConfig(**{**_NAMED[name], **changes})


_GPT2: dict[str, Any] = {"block_size": 1024, "vocab_size": 50257, "gelu": "tanh"}
_CHARACTERS: dict[str, Any] = {"vocab_size": 65, "bias": False}  # 65: the characters in Shakespeare

# GPT-2: Radford and others (2019). wordplay: the character model of the ALCF talk 'Parallel Training Methods' (2024).
# cpu: nanoGPT's settings for a machine without GPU. tiny: small enough to look at every number.
_NAMED: dict[str, dict[str, Any]] = {
    "gpt2": {"n_layer": 12, "n_head": 12, "n_embd": 768, **_GPT2},
    "gpt2-medium": {"n_layer": 24, "n_head": 16, "n_embd": 1024, **_GPT2},
    "gpt2-large": {"n_layer": 36, "n_head": 20, "n_embd": 1280, **_GPT2},
    "gpt2-xl": {"n_layer": 48, "n_head": 25, "n_embd": 1600, **_GPT2},
    "wordplay": {"n_layer": 12, "n_head": 12, "n_embd": 768, "block_size": 1024, **_CHARACTERS},
    "cpu": {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 64, **_CHARACTERS},
    "tiny": {"n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 8, **_CHARACTERS},
}

# The shapes stand in one column.
# fmt: off


class Attention(nn.Module):
    """Each position looks at itself and what came before, in H heads of D = C/H channels. (B, T, C) -> (B, T, C)."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.n_head, self.p = config.n_head, config.dropout
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.out = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, C = x.shape
        q, k, v = self.heads(x)                                  # 3 x (B, H, T, D)
        p = self.p if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)  # (B, H, T, D)
        y = y.transpose(1, 2).reshape(B, T, C)                   # (B, T, C)
        return self.dropout(self.out(y))                         # (B, T, C)

    def heads(self, x: torch.Tensor, first: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """x (B, T, C), which stands from place `first` on -> queries, keys, values: 3 x (B, H, T, D)."""
        B, T, C = x.shape
        q, k, v = (
            y.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            for y in self.qkv(x).chunk(3, dim=-1)
        )                                                        # 3 x (B, H, T, D)
        return q, k, v


class MLP(nn.Module):
    """Each position for itself, through four times as many channels. (B, T, C) -> (B, T, C)."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.down = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)
        self.approximate = "tanh" if config.gelu == "tanh" else "none"
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.up(x), approximate=self.approximate)     # (B, T, 4C)
        return self.dropout(self.down(x))                        # (B, T, C)


class Block(nn.Module):
    """One layer: attention, then MLP, each added to what came in. (B, T, C) -> (B, T, C)."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(config.n_embd, bias=config.bias)
        self.attention = Attention(config)
        self.norm_2 = nn.LayerNorm(config.n_embd, bias=config.bias)
        self.mlp = MLP(config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm_1(x))                   # (B, T, C)
        return x + self.mlp(self.norm_2(x))                      # (B, T, C)


class GPT(nn.Module):
    """Tokens in, logits for the token after each of them out; with targets, the loss too.

    Weights are drawn from torch's generator: seed it before (`torch.manual_seed`). `device` is where they are made
    (None: torch's default); "meta" allocates nothing; `to_empty(device=...)`, then `initialise()` make up for it later.
    """

    def __init__(self, config: GPTConfig, device: torch.device | str | None = None) -> None:
        super().__init__()
        self.config = config
        with torch.device("meta"):  # made empty: the layers' own initial values would only cost draws
            self.tokens = _embedding(config.vocab_size, config.n_embd)     # (V, C)
            self.positions = _embedding(config.block_size, config.n_embd)  # (block, C)
            self.dropout = nn.Dropout(config.dropout)
            self.blocks = nn.ModuleList(self.block() for _ in range(config.n_layer))
            self.norm = nn.LayerNorm(config.n_embd, bias=config.bias)
            self.unembed = None if config.tied else nn.Linear(config.n_embd, config.vocab_size, bias=False)
        _materialise(self, torch.device(device or torch.get_default_device()))
        if not self.tokens.weight.is_meta:
            self.initialise()

    def forward(
        self, tokens: torch.Tensor, targets: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """tokens, targets (B, T) of int64 -> logits (B, T, V), and the mean loss in nats () where targets are given.

        Raises ValueError for a sequence longer than the block.
        """
        x = self.embed(tokens)                                   # (B, T, C)
        for block in self.blocks:
            x = block(x)                                         # (B, T, C)
        logits = self.head(x)                                    # (B, T, V)
        return logits, None if targets is None else loss_of(logits, targets)

    def block(self) -> nn.Module:
        """One of L."""
        return Block(self.config)

    def embed(self, tokens: torch.Tensor, first: int = 0) -> torch.Tensor:
        """tokens (B, T), which stand from place `first` on -> x (B, T, C): what each token is, plus where it stands."""
        end = first + tokens.shape[1]
        if end > self.config.block_size:
            raise ValueError(f"{end} tokens in a row, but the model has positions for {self.config.block_size}")
        places = torch.arange(first, end, device=tokens.device)  # (T,)
        x = self.tokens(tokens) + self.positions(places)         # (B, T, C)
        return self.dropout(x)                                   # (B, T, C)

    def head(self, x: torch.Tensor) -> torch.Tensor:
        """x (B, T, C) -> logits (B, T, V), with the embedding's own matrix where the two are tied."""
        weight = self.tokens.weight if self.unembed is None else self.unembed.weight  # (V, C)
        return F.linear(self.norm(x), weight)                    # (B, T, V)

    @torch.no_grad()
    def initialise(self) -> None:
        """GPT-2's: normal of 0.02; the 2L layers that add to the residual stream are made smaller by sqrt(2L).

        So that the stream's size does not grow with the number of layers (Radford and others 2019, section 2.3).
        """
        for name, module in self.named_modules():
            if isinstance(module, nn.LayerNorm):
                module.reset_parameters()
            elif isinstance(module, nn.Linear | nn.Embedding):
                adds = name.endswith(("attention.out", "mlp.down"))
                nn.init.normal_(module.weight, std=0.02 / sqrt(2 * self.config.n_layer) if adds else 0.02)
                if isinstance(module, nn.Linear) and module.bias is not None:
                    nn.init.zeros_(module.bias)

    def count(self, positions: bool = True) -> int:
        """Parameters P. Papers and logs often leave the positions out; memory needs all of them."""
        everything = sum(p.numel() for p in self.parameters())
        return everything if positions else everything - self.positions.weight.numel()


# fmt: on


# On "meta" torch computes `normal_` and `empty_like`, thus `to_empty`, in Python, for which it loads its compiler:
# 70 MB and seconds of each process that makes a model.


def _embedding(rows: int, channels: int) -> nn.Embedding:
    """One that draws nothing."""
    return nn.Embedding.from_pretrained(torch.empty(rows, channels), freeze=False)


def _materialise(model: nn.Module, device: torch.device) -> None:
    """Gives every parameter memory of its own, on a device."""
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            empty = torch.empty(parameter.shape, dtype=parameter.dtype, device=device)
            setattr(module, name, nn.Parameter(empty))


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy in nats () of logits (B, T, V) against targets (B, T), in fp32 whatever the logits' dtype.

    Raises ValueError for targets of another shape.
    """
    if logits.shape[:-1] != targets.shape:
        raise ValueError(
            f"logits {tuple(logits.shape)} want a target for each place, {tuple(logits.shape[:-1])}, not"
            f" {tuple(targets.shape)}"
        )
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())  # ()


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups for AdamW: matrices and embeddings decay, biases and norms (one dimension) do not.

    Takes any module (a wrapped model too); parameters that need no gradient are left out.
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in trained if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0},
    ]
