"""The GPT: its sizes, its arithmetic beside a second one written out here, how it starts, what it may look at."""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt
from typing import Literal

import pytest
import torch
import torch.nn.functional as F

from kit.gpt.model import GPT, GPTConfig, decay_groups, loss_of
from kit.gpt.sample import sample

SMALL = GPTConfig(n_layer=2, n_head=3, n_embd=12, block_size=10, vocab_size=7)


@pytest.fixture
def model() -> GPT:
    torch.manual_seed(1)
    return GPT(SMALL)


def count_of(config: GPTConfig, positions: bool = True) -> int:
    return GPT(config, device="meta").count(positions)


# Counts as the papers and logs have them: GPT-2 as published in its 'transformers' port, wordplay in the talk's log.
@pytest.mark.parametrize(
    ("name", "whole", "without_positions"),
    [
        ("gpt2", 124_439_808, 123_653_376),
        ("gpt2-medium", 354_823_168, 353_774_592),
        ("gpt2-large", 774_030_080, 772_719_360),
        ("gpt2-xl", 1_557_611_200, 1_555_972_800),
        ("wordplay", 85_790_208, 85_003_776),
        ("cpu", 804_096, 795_904),
    ],
)
def test_named_sizes_have_the_counts_that_are_known(name: str, whole: int, without_positions: int) -> None:
    config = GPTConfig.named(name)
    assert count_of(config) == whole
    assert count_of(config, positions=False) == without_positions


def test_counting_allocates_nothing_and_tiny_is_tiny() -> None:
    assert all(p.is_meta for p in GPT(GPTConfig.named("gpt2-xl"), device="meta").parameters())
    assert 1_000 < count_of(GPTConfig.named("tiny")) < 10_000


def test_bias_and_tying_change_the_count_by_what_they_are() -> None:
    L, C, V = SMALL.n_layer, SMALL.n_embd, SMALL.vocab_size
    plain = count_of(GPTConfig(L, 3, C, 10, V, bias=False))
    assert count_of(SMALL) - plain == L * (3 * C + C + 4 * C + C + 2 * C) + C  # linear layers, norms, the last norm
    assert count_of(GPTConfig(L, 3, C, 10, V, bias=False, tied=False)) - plain == V * C


def test_changes_to_a_named_size() -> None:
    assert GPTConfig.named("cpu", vocab_size=103).vocab_size == 103
    assert GPTConfig.named("cpu", vocab_size=103).n_embd == 128


@pytest.mark.parametrize("gelu", ["exact", "tanh"])
def test_logits_are_those_of_the_arithmetic_written_out(gelu: Literal["exact", "tanh"]) -> None:
    """Without one call of the model's modules: attention with its T x T matrix, GELU by its two formulas."""
    torch.manual_seed(1)
    model = GPT(replace(SMALL, gelu=gelu))
    with torch.no_grad():  # move everything away from zeros and ones, so that each parameter counts
        for p in model.parameters():
            p.add_(torch.randn(p.shape) * 0.1)
    w = dict(model.named_parameters())
    tokens = torch.randint(7, (2, 9))
    T, C, H, D = 9, 12, 3, 4

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return (
            centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]
        )

    x = w["tokens.weight"][tokens] + w["positions.weight"][:T]
    for layer in ("blocks.0", "blocks.1"):
        qkv = norm(x, f"{layer}.norm_1") @ w[f"{layer}.attention.qkv.weight"].T + w[f"{layer}.attention.qkv.bias"]
        heads = []
        for h in range(H):
            q, k, v = (qkv[..., part * C + h * D : part * C + (h + 1) * D] for part in range(3))
            scores = q @ k.transpose(1, 2) / sqrt(D)
            scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), float("-inf"))
            heads.append(scores.softmax(-1) @ v)
        x = x + torch.cat(heads, -1) @ w[f"{layer}.attention.out.weight"].T + w[f"{layer}.attention.out.bias"]
        y = norm(x, f"{layer}.norm_2") @ w[f"{layer}.mlp.up.weight"].T + w[f"{layer}.mlp.up.bias"]
        chance = torch.erf(y / sqrt(2)) if gelu == "exact" else torch.tanh(sqrt(2 / torch.pi) * (y + 0.044715 * y**3))
        y = 0.5 * y * (1 + chance)
        x = x + y @ w[f"{layer}.mlp.down.weight"].T + w[f"{layer}.mlp.down.bias"]
    expected = norm(x, "norm") @ w["tokens.weight"].T

    logits, loss = model(tokens)
    assert loss is None
    torch.testing.assert_close(logits, expected)


def test_loss_is_the_mean_over_all_places(model: GPT) -> None:
    tokens, targets = torch.randint(7, (2, 5)), torch.randint(7, (2, 5))
    logits, loss = model(tokens, targets)
    chances = logits.log_softmax(-1)
    by_hand = -sum(chances[b, t, targets[b, t]] for b in range(2) for t in range(5)) / 10
    torch.testing.assert_close(loss, by_hand)


def test_no_place_sees_a_later_one(model: GPT) -> None:
    tokens = torch.randint(7, (1, 8))
    later = tokens.clone()
    later[0, 5] = (tokens[0, 5] + 1) % 7
    one, other = model(tokens)[0], model(later)[0]
    assert torch.equal(one[:, :5], other[:, :5])
    assert not torch.allclose(one[:, 5:], other[:, 5:])


def test_first_loss_is_that_of_knowing_nothing() -> None:
    torch.manual_seed(0)
    config = GPTConfig.named("cpu")
    tokens = torch.randint(65, (8, 65))
    _, loss = GPT(config)(tokens[:, :-1], tokens[:, 1:])
    assert loss is not None and abs(loss.item() - log(65)) < 0.1  # small weights: nearly even chances


def test_initial_weights_have_gpt2s_spread_and_residual_layers_a_smaller_one() -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(n_layer=8, n_head=4, n_embd=128, block_size=64, vocab_size=65))
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            assert not p.any(), name
        elif "norm" in name:
            assert (p == 1).all(), name
        else:
            residual = name.endswith(("attention.out.weight", "mlp.down.weight"))
            wanted = 0.02 / 4 if residual else 0.02  # sqrt(2 x 8 layers) = 4
            # the spread of k draws is known to about 1 / sqrt(2k); five times that
            assert p.std().item() == pytest.approx(wanted, rel=5 / sqrt(2 * p.numel())), name


def test_a_seed_makes_the_same_model_and_initialise_fills_one_made_on_meta() -> None:
    torch.manual_seed(5)
    one = GPT(SMALL)
    torch.manual_seed(6)
    other = GPT(SMALL)
    assert not torch.equal(one.tokens.weight, other.tokens.weight)
    late = GPT(SMALL, device="meta").to_empty(device="cpu")
    torch.manual_seed(5)
    late.initialise()
    for a, b in zip(late.parameters(), one.parameters(), strict=True):
        assert torch.equal(a, b)


def test_tied_weights_are_one_parameter_and_untied_ones_two(model: GPT) -> None:
    assert [name for name, _ in model.named_parameters() if "unembed" in name] == []
    model(torch.zeros(1, 4, dtype=torch.int64))[0].sum().backward()
    assert model.tokens.weight.grad is not None and model.tokens.weight.grad.all(), "every token's logit reaches it"
    apart = GPT(GPTConfig(2, 3, 12, 10, 7, tied=False))
    assert apart.unembed is not None and apart.unembed.weight.shape == (7, 12)
    apart(torch.zeros(1, 4, dtype=torch.int64))[0].sum().backward()
    assert apart.tokens.weight.grad is not None and not apart.tokens.weight.grad[1:].any(), (
        "only the token that was read"
    )


def test_dropout_works_in_training_alone() -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(2, 3, 12, 10, 7, dropout=0.5))
    tokens = torch.randint(7, (1, 8))
    assert not torch.equal(model(tokens)[0], model(tokens)[0])
    model.eval()
    assert torch.equal(model(tokens)[0], model(tokens)[0])


def test_decay_groups_share_out_every_parameter_once(model: GPT) -> None:
    model.positions.weight.requires_grad_(False)
    decayed, spared = decay_groups(model, 0.1)
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.1, 0.0)
    names = {id(p): name for name, p in model.named_parameters()}
    assert all(names[id(p)].endswith("weight") and "norm" not in names[id(p)] for p in decayed["params"])
    assert all("bias" in names[id(p)] or "norm" in names[id(p)] for p in spared["params"])
    both = [names[id(p)] for p in (*decayed["params"], *spared["params"])]
    assert len(both) == len(set(both)) and set(names.values()) - set(both) == {"positions.weight"}
    torch.optim.AdamW(decay_groups(model, 0.1), lr=1e-3)


def test_what_makes_no_model_is_refused(model: GPT) -> None:
    with pytest.raises(ValueError, match="10 channels do not divide by 3 heads"):
        GPTConfig(1, 3, 10, 8, 7)
    with pytest.raises(ValueError, match="n_layer is 0"):
        GPTConfig(0, 3, 12, 8, 7)
    with pytest.raises(ValueError, match="dropout is 1"):
        GPTConfig(1, 3, 12, 8, 7, dropout=1)
    with pytest.raises(ValueError, match="no GPT is named 'gpt5'.*wordplay"):
        GPTConfig.named("gpt5")
    with pytest.raises(ValueError, match="11 tokens in a row.*positions for 10"):
        model(torch.zeros(1, 11, dtype=torch.int64))


def test_sampling_takes_the_likeliest_at_temperature_0_and_looks_back_one_block(model: GPT) -> None:
    start = torch.tensor([[1, 2], [3, 4]])
    found = sample(model, start, 12, temperature=0)
    assert found.shape == (2, 14) and torch.equal(found[:, :2], start)
    for t in range(2, 14):
        logits, _ = model(found[:, max(0, t - 10) : t])
        assert torch.equal(found[:, t], logits[:, -1].argmax(-1))
    assert model.training, "left in the mode it was in"


def test_sampling_draws_as_the_model_says_and_among_the_k_likeliest() -> None:
    class Fixed(torch.nn.Module):
        def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, None]:
            logits = torch.tensor([0.0, 1.0, 2.0, 3.0])
            return logits.expand(*tokens.shape, 4), None

    start = torch.zeros(4000, 1, dtype=torch.int64)
    draw = torch.Generator().manual_seed(0)

    def shares(**how: float) -> torch.Tensor:
        drawn = sample(Fixed(), start, 1, block=1, generator=draw, **how)[:, 1]
        return drawn.bincount(minlength=4) / 4000

    # 4,000 draws know a share to within sqrt(1/4 / 4000) = 0.008; five times that
    expected = F.softmax(torch.tensor([0.0, 1.0, 2.0, 3.0]), -1)
    torch.testing.assert_close(shares(), expected, rtol=0, atol=0.04)
    hot = F.softmax(torch.tensor([0.0, 0.5, 1.0, 1.5]), -1)
    torch.testing.assert_close(shares(temperature=2.0), hot, rtol=0, atol=0.04)
    two = shares(top_k=2)
    assert not two[:2].any() and two[2:].all()
    assert shares(top_k=1)[3] == 1
    with pytest.raises(ValueError, match="pass block="):
        sample(Fixed(), start, 1)
    with pytest.raises(ValueError, match="temperature of 0 or more"):
        shares(temperature=-1)


def test_targets_of_another_shape_are_refused() -> None:
    """Turned round they are as many, and mean other places."""
    with pytest.raises(ValueError, match=r"want a target for each place, \(2, 3\), not \(3, 2\)"):
        loss_of(torch.zeros(2, 3, 5), torch.zeros(3, 2, dtype=torch.int64))
