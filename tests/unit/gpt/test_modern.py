"""The second model: what it is made of, that only distances count, and that it samples and saves as the first does."""

from __future__ import annotations

import pytest
import torch

from kit.gpt.model import GPT, GPTConfig
from kit.gpt.modern import ModernGPT, RotaryAttention, angles, made, turned
from kit.gpt.sample import sample

SIZES = GPTConfig(n_layer=2, n_head=2, n_embd=16, block_size=12, vocab_size=11, modern=True)


@pytest.fixture
def model() -> GPT:
    torch.manual_seed(0)
    model = made(SIZES)
    for p in model.parameters():
        p.data *= 5  # as trained: logits far enough apart for draws to depend on them
    return model.double()


def test_it_has_no_positions_to_learn(model: GPT) -> None:
    with torch.device("meta"):
        plain = GPT(GPTConfig(2, 2, 16, 12, 11))
    assert isinstance(model, ModernGPT) and type(made(GPTConfig(2, 2, 16, 12, 11))) is GPT
    assert model.count() == model.count(positions=False) == plain.count(positions=False)
    assert set(dict(plain.named_parameters())) - set(dict(model.named_parameters())) == {"positions.weight"}


def test_a_turn_is_a_complex_number() -> None:
    """Channels i and i + D/2 are one: times exp(i place 10000^(-2i/D))."""
    x = torch.randn(2, 3, 5, 8)
    numbers = torch.complex(x[..., :4], x[..., 4:])
    turns = torch.outer(torch.arange(7.0, 12.0), 10_000.0 ** -(torch.arange(4) / 4))
    wanted = numbers * torch.polar(torch.ones_like(turns), turns)
    found = turned(x, *angles(5, 8, 7, x.device))
    torch.testing.assert_close(found, torch.cat([wanted.real, wanted.imag], dim=-1))


def test_queries_and_keys_have_one_length_and_see_distances_alone() -> None:
    torch.manual_seed(0)
    attention = RotaryAttention(SIZES)
    q, k, _ = attention.heads(torch.randn(1, 6, 16) * 9)
    torch.testing.assert_close(q.norm(dim=-1), torch.full(q.shape[:-1], 8**0.5))
    one = torch.randn(1, 1, 16).expand(1, 6, 16)  # the same at every place
    q, k, _ = attention.heads(one)
    logits = (q @ k.mT)[0, 0]
    for distance in range(6):
        along = logits.diagonal(-distance)
        torch.testing.assert_close(along, along[:1].expand_as(along))
    assert not torch.allclose(logits[5, 0], logits[5, 4])
    later_q, later_k, _ = attention.heads(one, first=100)
    torch.testing.assert_close((later_q @ later_k.mT)[0, 0], logits, rtol=1e-4, atol=1e-4)


def test_no_place_sees_a_later_one_and_all_before_count(model: GPT) -> None:
    tokens = torch.randint(11, (1, 8))
    later = tokens.clone()
    later[0, 5] = (tokens[0, 5] + 1) % 11
    one, other = model(tokens)[0], model(later)[0]
    assert torch.equal(one[:, :5], other[:, :5]) and not torch.allclose(one[:, 5:], other[:, 5:])


def test_a_cache_changes_nothing_also_where_the_block_is_full(model: GPT) -> None:
    start = torch.tensor([[1, 2, 3], [4, 5, 6]])

    def drawn(cache: bool) -> torch.Tensor:
        return sample(model, start, 15, cache=cache, generator=torch.Generator().manual_seed(3))

    assert torch.equal(drawn(cache=True), drawn(cache=False))


def test_heads_without_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="heads of 3 channels have no pairs to turn"):
        made(GPTConfig(1, 2, 6, 8, 11, modern=True))
