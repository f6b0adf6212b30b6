"""Text out of a model: one token after another, each drawn from what the model expects next."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

# The shapes stand in one column.
# fmt: off


@torch.no_grad()
def sample(
    model: nn.Module,
    tokens: torch.Tensor,
    count: int,
    *,
    block: int | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Goes on from tokens (B, T) by `count` tokens: (B, T + count).

    `block`: the most tokens the model looks back on; None: as its `config` says. `temperature`: 0 takes the likeliest
    token each time, small ones keep near it, 1 draws as the model says. `top_k`: only among the k likeliest.
    `generator`: lives on the device of the tokens. The model is left in the mode it was in. Raises ValueError for a
    negative temperature, k < 1, or no tokens to go on from.
    """
    if temperature < 0 or (top_k is not None and top_k < 1) or tokens.shape[1] < 1:
        raise ValueError("sampling takes a temperature of 0 or more, top_k of 1 or more, and one token to go on from")
    back = _block_of(model) if block is None else block
    was_training = model.training
    model.eval()
    try:
        for _ in range(count):
            logits, _ = model(tokens[:, -back:])                # (B, T, V)
            token = _draw(logits[:, -1], temperature, top_k, generator)  # (B, 1)
            tokens = torch.cat([tokens, token], dim=1)           # (B, T + 1)
    finally:
        model.train(was_training)
    return tokens


def _block_of(model: nn.Module) -> int:
    config: Any = getattr(model, "config", None)
    if config is None:
        raise ValueError("this model has no config that says how far it looks back: pass block=")
    return int(config.block_size)


def _draw(
    logits: torch.Tensor, temperature: float, top_k: int | None, generator: torch.Generator | None
) -> torch.Tensor:
    """One token for each row of logits (B, V): (B, 1)."""
    if temperature == 0:
        return logits.argmax(dim=-1, keepdim=True)               # (B, 1)
    if top_k is not None:
        kept = logits.topk(min(top_k, logits.shape[-1])).values  # (B, k)
        logits = logits.masked_fill(logits < kept[:, -1:], float("-inf"))  # (B, V)
    chances = (logits / temperature).softmax(dim=-1)             # (B, V)
    return chances.multinomial(1, generator=generator)           # (B, 1)
