"""The GPT with three of today's parts in the place of GPT-2's: it learns the same text in fewer steps.

    rotary positions    queries and keys are turned by an angle that grows with the place: their product knows how far
                        apart the two are, and no positions are learnt (J. Su and others, RoFormer, 2021)
    QK norm             queries and keys have length sqrt(D) before they are turned, so logits of attention stay within
                        sqrt(D), whatever the rate (A. Henry and others, Query-key normalization, 2020)
    squared ReLU        in the MLP, in the place of GELU (D. So and others, Primer, 2021)

Together with Muon they are the recipe of modded-nanogpt's shorter track (K. Jordan and others, 2024). Letters as in
`kit.gpt.model`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from kit.gpt.model import GPT, MLP, Attention, Block, GPTConfig

BASE = 10_000.0  # the slowest pair turns by an angle of one in about so many places


def made(config: GPTConfig, device: torch.device | str | None = None) -> GPT:
    """The GPT that a config describes."""
    return (ModernGPT if config.modern else GPT)(config, device)


# The shapes stand in one column.
# fmt: off


class ModernGPT(GPT):
    """A GPT with these parts. It has no `positions`."""

    def __init__(self, config: GPTConfig, device: torch.device | str | None = None) -> None:
        if config.n_embd // config.n_head % 2:
            raise ValueError(f"heads of {config.n_embd // config.n_head} channels have no pairs to turn: make it even")
        super().__init__(config, device)
        del self.positions

    def block(self) -> nn.Module:
        return ModernBlock(self.config)

    def embed(self, tokens: torch.Tensor, first: int = 0) -> torch.Tensor:
        """tokens (B, T) -> x (B, T, C): what each token is; where it stands, attention sees."""
        x: torch.Tensor = self.dropout(self.tokens(tokens))
        return x                                                 # (B, T, C)

    def count(self, positions: bool = True) -> int:
        """Parameters P; there are no positions among them."""
        return sum(p.numel() for p in self.parameters())


class ModernBlock(Block):
    """One layer. (B, T, C) -> (B, T, C)."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        self.attention = RotaryAttention(config)
        self.mlp = SquaredReLU(config)


class RotaryAttention(Attention):
    """Attention with queries and keys normalised and turned."""

    def heads(self, x: torch.Tensor, first: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        q, k, v = super().heads(x)                               # 3 x (B, H, T, D)
        T, D = q.shape[-2:]
        cos, sin = angles(T, D, first, x.device)                 # 2 x (T, D/2)
        q, k = (turned(F.rms_norm(y, (D,)), cos.to(y.dtype), sin.to(y.dtype)) for y in (q, k))
        return q, k, v


class SquaredReLU(MLP):
    """The MLP. (B, T, C) -> (B, T, C)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.up(x)).square()                          # (B, T, 4C)
        y: torch.Tensor = self.dropout(self.down(x))
        return y                                                 # (B, T, C)


def angles(T: int, D: int, first: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine of the angle of each place, from `first` on, and each pair of channels: 2 x (T, D/2)."""
    places = torch.arange(first, first + T, device=device, dtype=torch.float32)  # (T,)
    speeds = BASE ** -(torch.arange(0, D, 2, device=device, dtype=torch.float32) / D)  # (D/2,)
    turns = places[:, None] * speeds                             # (T, D/2)
    return turns.cos(), turns.sin()


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x (B, H, T, D), whose channel i is a pair with i + D/2, each pair turned by its angle: (B, H, T, D)."""
    a, b = x.chunk(2, dim=-1)                                    # 2 x (B, H, T, D/2)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


# fmt: on
