"""Text out of a model: one token after another, each drawn from what the model expects next."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from kit.gpt.cached import Reader
from kit.gpt.model import GPT

# The shapes stand in one column.
# fmt: off


@torch.no_grad()
def sample(
    model: nn.Module,
    tokens: torch.Tensor,
    count: int,
    *,
    block: int | None = None,
    cache: bool = False,
    temperature: float = 1.0,
    top_k: int | None = None,
    generator: torch.Generator | None = None,
    vocabulary: int | None = None,
) -> torch.Tensor:
    """Goes on from tokens (B, T) by `count` tokens: (B, T + count).

    `block`: the most tokens the model looks back on; None: as its `config` says. `cache`: a GPT of ours keeps keys and
    values, so a token costs one token's work until the block is full; then positions move, and all is read anew.
    `temperature`: 0 takes the likeliest token each time, small ones keep near it, 1 draws as the model says. `top_k`:
    only among the k likeliest. `vocabulary`: only among so many tokens; those after them pad the model and stand for
    nothing. `generator`: lives on the device of the tokens. The model is left in the mode it was in.
    Raises ValueError for a negative temperature, k < 1, no tokens to go on from, a cache with another model or a
    block of its own, and a model whose logits are in shards.
    """
    if temperature < 0 or (top_k is not None and top_k < 1) or tokens.shape[1] < 1:
        raise ValueError("sampling takes a temperature of 0 or more, top_k of 1 or more, and one token to go on from")
    if hasattr(model, "region"):
        raise ValueError(
            "a rank of a tensor-parallel GPT has the logits of its part of the vocabulary alone: sample from a"
            " kit.gpt.GPT with the whole weights, which the strategy's state() has"
        )
    if cache and (not isinstance(model, GPT) or block is not None):
        raise ValueError("a cache is for a kit.gpt.GPT and its own block: leave cache or block out")
    back = _block_of(model) if block is None else block
    was_training = model.training
    model.eval()
    try:
        next_logits = _remembering(model) if isinstance(model, GPT) and cache else partial(_reading, model, back)
        for _ in range(count):
            token = _draw(next_logits(tokens)[:, :vocabulary], temperature, top_k, generator)  # (B, 1)
            tokens = torch.cat([tokens, token], dim=1)           # (B, T + 1)
    finally:
        model.train(was_training)
    return tokens


def _reading(model: nn.Module, back: int, tokens: torch.Tensor) -> torch.Tensor:
    """Tokens (B, T) -> logits (B, V) of the next one; all of them are read each time."""
    logits, _ = model(tokens[:, -back:])                         # (B, T, V)
    last: torch.Tensor = logits[:, -1]
    return last                                                  # (B, V)


def _remembering(model: GPT) -> Callable[[torch.Tensor], torch.Tensor]:
    """The same, of which each call reads what is new, as long as the block has room."""
    reader, block = Reader(model), model.config.block_size

    def next_logits(tokens: torch.Tensor) -> torch.Tensor:
        if tokens.shape[1] > block:
            return _reading(model, block, tokens)                # (B, V)
        return reader.next(tokens[:, reader.read:])              # (B, V)

    return next_logits


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
