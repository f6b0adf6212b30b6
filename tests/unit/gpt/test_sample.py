"""Sampling with a cache is sampling without it, and does one token's work for a token."""

from __future__ import annotations

import pytest
import torch

from kit.gpt.cached import Reader
from kit.gpt.model import GPT, GPTConfig
from kit.gpt.sample import sample


@pytest.fixture
def model() -> GPT:
    torch.manual_seed(0)
    made = GPT(GPTConfig(n_layer=2, n_head=2, n_embd=16, block_size=12, vocab_size=11, dropout=0.3))
    for p in made.parameters():
        p.data *= 5  # as trained: logits far enough apart for draws to depend on them
    return made.double()


START = torch.tensor([[1, 2, 3], [4, 5, 6]])  # (B, T)


@pytest.mark.parametrize("how", [{"temperature": 0.0}, {"temperature": 0.8, "top_k": 3}, {}], ids=str)
def test_a_cache_changes_nothing_also_where_the_block_is_full(model: GPT, how: dict[str, float]) -> None:
    def drawn(cache: bool, seed: int = 3) -> torch.Tensor:
        own = torch.Generator().manual_seed(seed)
        return sample(model, START, 15, cache=cache, generator=own, **how)  # type: ignore[arg-type]

    torch.manual_seed(1)
    first = drawn(cache=True)
    assert first.shape == (2, 18) and model.training
    assert torch.equal(first, drawn(cache=False)), "the same draws from a seed of their own"
    if how.get("temperature") != 0.0:
        assert not torch.equal(first, drawn(cache=True, seed=4))


def test_a_reader_says_what_the_model_says(model: GPT) -> None:
    model.eval()
    reader = Reader(model)
    tokens = torch.randint(11, (2, 12))
    for read in (range(5), *(range(k, k + 1) for k in range(5, 12))):
        found = reader.next(tokens[:, read.start : read.stop])
        wanted = model(tokens[:, : read.stop])[0][:, -1]
        torch.testing.assert_close(found, wanted)
    with pytest.raises(ValueError, match="1 tokens after 12.*12 in all"):
        reader.next(tokens[:, :1])
    fresh = Reader(model)
    fresh.next(tokens[:, :2])
    with pytest.raises(ValueError, match="one at a time after the first"):
        fresh.next(tokens[:, 2:4])


def test_each_token_is_read_once(model: GPT) -> None:
    read = []
    model.blocks[0].mlp.register_forward_hook(lambda _, args, y: read.append(y.shape[1]))  # type: ignore[union-attr]
    sample(model, START, 6, cache=True)
    assert read == [3, 1, 1, 1, 1, 1]


def test_a_cache_of_another_model_is_refused(model: GPT) -> None:
    with pytest.raises(ValueError, match="a cache is for a kit.gpt.GPT"):
        sample(torch.nn.Linear(2, 2), START, 1, cache=True, block=3)
    with pytest.raises(ValueError, match="its own block"):
        sample(model, START, 1, cache=True, block=3)


def test_logits_in_shards_are_not_drawn_from() -> None:
    """A rank would draw from its own part of the vocabulary, and nobody would notice."""
    parallel = torch.nn.Linear(2, 2)
    parallel.region = object()  # type: ignore[assignment]  # as a tensor-parallel GPT has
    with pytest.raises(ValueError, match=r"part of the vocabulary alone: sample from a kit\.gpt\.GPT"):
        sample(parallel, START, 1, block=3)
