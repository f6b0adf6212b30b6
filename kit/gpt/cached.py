"""A GPT that remembers: keys and values of the tokens it has read, so that the next one costs one token's work.

Letters: B batch, t new tokens, T tokens read so far, C channels, H heads of D = C/H channels, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from kit.gpt.model import GPT, Attention

# The shapes stand in one column.
# fmt: off


class Reader:
    """Reads tokens with a model, some at first and then one at a time; up to the model's block of them.

    The model is called in the mode it is in: `eval()` it first.
    """

    def __init__(self, model: GPT) -> None:
        self.model, self.read = model, 0
        self._kept: list[tuple[torch.Tensor, torch.Tensor]] = []  # by layer: keys and values, 2 x (B, H, block, D)

    @torch.no_grad()
    def next(self, tokens: torch.Tensor) -> torch.Tensor:
        """New tokens (B, t) -> logits (B, V) of what comes after the last of them.

        Raises ValueError for more tokens than the block has places, and for several at once after the first ones.
        """
        t, model = tokens.shape[1], self.model
        block = model.config.block_size
        if self.read + t > block or (self.read and t != 1):
            raise ValueError(
                f"{t} tokens after {self.read}: a reader takes one at a time after the first ones, {block} in all"
            )
        x = model.embed(tokens, self.read)                       # (B, t, C)
        blocks: list[Any] = list(model.blocks)
        for layer, one in enumerate(blocks):
            x = x + self._attend(layer, one.attention, one.norm_1(x))  # (B, t, C)
            x = x + one.mlp(one.norm_2(x))                       # (B, t, C)
        self.read += t
        logits = model.head(x[:, -1:])                           # (B, 1, V)
        return logits[:, 0]                                      # (B, V)

    def _attend(self, layer: int, attention: Attention, x: torch.Tensor) -> torch.Tensor:
        B, t, C = x.shape
        q, k, v = attention.heads(x, self.read)                  # 3 x (B, H, t, D)
        if layer == len(self._kept):
            room = k.new_empty(B, k.shape[1], self.model.config.block_size, k.shape[3])
            self._kept.append((room, torch.empty_like(room)))    # 2 x (B, H, block, D)
        keys, values = self._kept[layer]
        end = self.read + t
        keys[:, :, self.read:end], values[:, :, self.read:end] = k, v
        y = F.scaled_dot_product_attention(
            q, keys[:, :, :end], values[:, :, :end], is_causal=t > 1
        )                                                        # (B, H, t, D); one token looks at all there are
        y = attention.out(y.transpose(1, 2).reshape(B, t, C))    # (B, t, C)
        out: torch.Tensor = attention.dropout(y)
        return out                                               # (B, t, C)


# fmt: on
