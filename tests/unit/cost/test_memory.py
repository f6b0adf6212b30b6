"""Formulas of sizes and activations: against published figures, and what a real layer keeps for its backward."""

from __future__ import annotations

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kit.cost.machines import ACCELERATORS, POLARIS, peak
from kit.cost.memory import activations, activations_per_layer, gpt_parameters
from kit.gpt.model import GPT, Block, GPTConfig


@pytest.mark.parametrize("name", ["gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "wordplay", "cpu", "tiny"])
def test_parameters_by_formula_are_those_of_the_model(name: str) -> None:
    named = GPTConfig.named(name)
    for bias, tied, positions in product((True, False), repeat=3):
        config = GPTConfig(min(named.n_layer, 3), named.n_head, named.n_embd, named.block_size, named.vocab_size,
                           bias=bias, tied=tied)  # fmt: skip
        assert GPT(config, device="meta").count(positions) == gpt_parameters(
            layers=config.n_layer, channels=config.n_embd, vocabulary=config.vocab_size, block=config.block_size,
            bias=bias, tied=tied, positions=positions,
        )  # fmt: skip


def test_parameters_of_gpt2_and_wordplay() -> None:
    gpt2 = {"layers": 12, "channels": 768, "vocabulary": 50257, "block": 1024}
    assert gpt_parameters(**gpt2) == 124_439_808
    assert gpt_parameters(**gpt2, positions=False) == 123_653_376
    wordplay = {"layers": 12, "channels": 768, "vocabulary": 65, "block": 1024, "bias": False}
    assert gpt_parameters(**wordplay, positions=False) == 85_003_776
    assert gpt_parameters(**wordplay) == 85_790_208


SHAPE = {"batch": 2, "sequence": 64, "channels": 32, "heads": 4}
SBH, AS_H = 2 * 64 * 32, 4 * 64 / 32


@pytest.mark.parametrize(
    ("how", "terms"),
    [
        ({}, 34 + 5 * AS_H),
        ({"dropout": False}, 32 + 2 * AS_H),
        ({"fused_attention": True}, 34),
        ({"dropout": False, "fused_attention": True}, 32),
        ({"recomputation": "selective"}, 34),
        ({"recomputation": "full"}, 2),
        ({"tensor_parallel": 4}, 10 + 24 / 4 + 5 * AS_H / 4),
        ({"tensor_parallel": 4, "dropout": False}, 8 + 24 / 4 + 2 * AS_H / 4),
        ({"tensor_parallel": 4, "sequence_parallel": True}, (34 + 5 * AS_H) / 4),
        ({"tensor_parallel": 2, "sequence_parallel": True, "recomputation": "selective"}, 34 / 2),
        ({"tensor_parallel": 2, "recomputation": "full"}, 2),
        ({"tensor_parallel": 2, "sequence_parallel": True, "recomputation": "full"}, 1),
        ({"itemsize": 4}, 2 * (34 + 5 * AS_H)),
    ],
)
def test_activations_by_hand(how: dict[str, object], terms: float) -> None:
    assert activations_per_layer(**SHAPE, **how) == pytest.approx(SBH * terms, rel=1e-12)


def test_activations_of_gpt3_as_published() -> None:
    """K, section 5: of GPT-3's 175B (96 heads, 12,288 channels, 2,048 tokens) 5as/h is 80 and selective saves 70 %."""
    gpt3 = {"batch": 1, "sequence": 2048, "channels": 12288, "heads": 96, "tensor_parallel": 8}
    whole = activations_per_layer(**gpt3, sequence_parallel=True)
    selective = activations_per_layer(**gpt3, sequence_parallel=True, recomputation="selective")
    assert 5 * 96 * 2048 / 12288 == 80
    assert round(1 - selective / whole, 2) == 0.70


class Saved:
    """Counts the bytes that autograd keeps, each piece of memory once, the parameters left out."""

    def __init__(self, module: nn.Module) -> None:
        self._known = {p.untyped_storage().data_ptr() for p in module.parameters()}
        self._kept: dict[int, torch.Tensor] = {}
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self._keep, lambda tensor: tensor)

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in self._known:
            self._kept[place] = tensor  # held, so that its place is not given to another
        return tensor

    def nbytes(self, least: int = 0) -> int:
        """Of the pieces of `least` bytes and more."""
        sizes = (t.untyped_storage().nbytes() for t in self._kept.values())
        return sum(size for size in sizes if size >= least)


def test_what_a_layer_of_the_model_really_keeps() -> None:
    """32 s b h without dropout and with fused attention; doubled, since this is fp32. Beyond it the norms keep two
    numbers for each token and fused attention one for each token and head: less than one row of channels."""
    config = GPTConfig(n_layer=1, n_head=4, n_embd=32, block_size=64, vocab_size=9)
    block = Block(config)
    x = torch.randn(2, 64, 32, requires_grad=True) * 1.0  # (B, T, C), not a leaf: as a layer before it would hand over
    saved = Saved(block)
    with saved.hooks:
        block(x)
    expected = activations_per_layer(**SHAPE, dropout=False, fused_attention=True, itemsize=4)
    small = 4 * 2 * 64 * (2 * 2 + 4)  # fp32, b s, two for each of two norms, one for each of 4 heads
    assert saved.nbytes() == expected + small
    assert saved.nbytes(least=4 * SBH) == expected == 4 * 16 * SBH


def test_what_attention_with_its_square_keeps() -> None:
    """The 2as/h term: softmax's result is the one s x s piece that is kept, in each head."""
    q, k, v = (torch.randn(2, 4, 64, 8, requires_grad=True) for _ in range(3))  # (B, H, T, D)
    saved = Saved(nn.Module())
    with saved.hooks:
        F.softmax(q @ k.transpose(2, 3), dim=-1) @ v
    square = sum(t.untyped_storage().nbytes() for t in saved._kept.values() if t.shape[-1] == t.shape[-2] == 64)
    with_square = activations_per_layer(**SHAPE, dropout=False, itemsize=4)
    without = activations_per_layer(**SHAPE, dropout=False, itemsize=4, fused_attention=True)
    assert square == with_square - without


def test_all_layers_and_the_one_that_is_recomputed() -> None:
    one = activations_per_layer(**SHAPE)
    assert activations(layers=5, **SHAPE) == 5 * one
    assert activations(layers=5, **SHAPE, recomputation="full") == 5 * 2 * SBH + one
    assert activations(layers=5, **SHAPE, recomputation="selective") == 5 * 34 * SBH


def test_peaks_and_polaris() -> None:
    assert (peak("A100-40", "fp32"), peak("A100-80", "tf32"), peak("A100-40", "bf16")) == (19.5e12, 156e12, 312e12)
    for hopper in ("H100", "H200"):
        assert (peak(hopper, "fp32"), peak(hopper, "tf32"), peak(hopper, "fp16")) == (67e12, 495e12, 989e12)
    assert POLARIS.per_node * POLARIS.accelerator.memory == 160 * 2**30  # as its page has it, for a node
    with pytest.raises(ValueError, match="no figures are known for 'cpu'.*measure"):
        peak("cpu", "fp32")
    with pytest.raises(ValueError, match="known for 'fp8'"):
        ACCELERATORS["H100"].peak("fp8")


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="4 heads cannot be shared by 3"):
        activations_per_layer(**SHAPE, tensor_parallel=3)
    with pytest.raises(ValueError, match="'none', 'selective' or 'full', not 'some'"):
        activations_per_layer(**SHAPE, recomputation="some")
    with pytest.raises(ValueError, match="whole numbers, 1 or more"):
        activations_per_layer(batch=0, sequence=1, channels=1, heads=1)
    with pytest.raises(ValueError, match="at least one layer, not 0"):
        activations(layers=0, **SHAPE)
    with pytest.raises(ValueError, match="1 or more"):
        gpt_parameters(layers=0, channels=1, vocabulary=1, block=1)
    with pytest.raises(ValueError, match="1 or more"):
        gpt_parameters(layers=float("nan"), channels=1, vocabulary=1, block=1)  # type: ignore[arg-type]
