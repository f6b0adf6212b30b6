"""Memory formulas: against published figures, torch's own optimizer, and what a real layer keeps for its backward."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kit.cost.fitting import MODELS, fewest_nodes, fitting, fitting_table
from kit.cost.machines import ACCELERATORS, POLARIS, peak
from kit.cost.memory import (
    FP32,
    MIXED,
    activations,
    activations_per_layer,
    gpt_parameters,
    layer_in_hand,
    model_state,
    share,
)
from kit.gpt.model import Block, GPTConfig, count_of

GB = 1e9


# R's own example (figure 1): 7.5 billion parameters, 64 ranks: 120, 31.4, 16.6 and 1.9 GB.
@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_the_figure_of_the_zero_paper(stage: int, gigabytes: float) -> None:
    total = model_state(7_500_000_000, ranks=64, stage=stage).total
    assert round(total / GB, 1) == gigabytes


@pytest.mark.parametrize(
    ("stage", "mixed", "fp32"),  # bytes for each parameter on 4 ranks, worked out by hand
    [(0, 16.0, 16.0), (1, 4 + 3.0, 8 + 2.0), (2, 2 + 3.5, 4 + 3.0), (3, 4.0, 4.0)],
)
def test_bytes_for_each_parameter_on_four_ranks(stage: int, mixed: float, fp32: float) -> None:
    assert model_state(1000, ranks=4, stage=stage).total == 1000 * mixed
    assert model_state(1000, ranks=4, stage=stage, precision=FP32).total == 1000 * fp32


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("ranks", [1, 3, 7, 11])
def test_state_is_that_of_tensors_that_are_cut_and_counted(stage: int, ranks: int) -> None:
    """For P = 100, which none of these divides: real tensors of each kind, each as it is held in that stage."""

    def held(dtype: torch.dtype, sharded: bool, rank: int) -> int:
        whole = torch.zeros(100, dtype=dtype)
        part = whole.tensor_split(ranks)[rank] if sharded else whole
        return part.numel() * part.element_size()

    for rank in range(ranks):
        state = model_state(100, ranks=ranks, stage=stage, rank=rank)
        assert state.weights == held(torch.bfloat16, stage >= 3, rank)
        assert state.gradients == held(torch.bfloat16, stage >= 2, rank)
        assert state.optimizer == 3 * held(torch.float32, stage >= 1, rank)
    whole = sum(model_state(100, ranks=ranks, stage=3, rank=rank).total for rank in range(ranks))
    assert whole == 16 * 100, "together the shards are the whole, no more"


def test_padding_makes_all_shards_as_large_as_the_largest() -> None:
    assert [share(10, 4, rank=r) for r in range(4)] == [3, 3, 2, 2]
    assert [share(10, 4, rank=r, padded=True) for r in range(4)] == [3, 3, 3, 3]
    assert [share(2, 4, rank=r) for r in range(4)] == [1, 1, 0, 0]
    assert model_state(10, ranks=4, stage=3, rank=3, padded=True).total == 16 * 3
    assert model_state(12, ranks=4, stage=3, rank=3, padded=True) == model_state(12, ranks=4, stage=3, rank=3)


def test_fp32_is_what_adamw_really_holds() -> None:
    model = nn.Linear(30, 20)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 30)).sum().backward()
    optimizer.step()

    def held(tensors: list[torch.Tensor]) -> int:
        return sum(t.numel() * t.element_size() for t in tensors)

    moments = [t for state in optimizer.state.values() for name, t in state.items() if name != "step"]
    state = model_state(620, precision=FP32)
    assert state.weights == held(list(model.parameters()))
    assert state.gradients == held([p.grad for p in model.parameters() if p.grad is not None])
    assert state.optimizer == held(moments)


@pytest.mark.parametrize("name", ["gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "wordplay", "cpu", "tiny"])
def test_parameters_by_formula_are_those_of_the_model(name: str) -> None:
    named = GPTConfig.named(name)
    for bias, tied, positions in product((True, False), repeat=3):
        config = GPTConfig(min(named.n_layer, 3), named.n_head, named.n_embd, named.block_size, named.vocab_size,
                           bias=bias, tied=tied)  # fmt: skip
        assert count_of(config, positions) == gpt_parameters(
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


def test_all_layers_and_the_one_in_hand() -> None:
    one = activations_per_layer(**SHAPE)
    assert activations(layers=5, **SHAPE) == 5 * one
    assert activations(layers=5, **SHAPE, recomputation="full") == 5 * 2 * SBH + one
    assert activations(layers=5, **SHAPE, recomputation="selective") == 5 * 34 * SBH
    assert layer_in_hand(1000, 10) == 4 * 100 and layer_in_hand(1001, 10, FP32) == 8 * 101


def test_peaks_and_polaris() -> None:
    assert (peak("A100-40", "fp32"), peak("A100-80", "tf32"), peak("A100-40", "bf16")) == (19.5e12, 156e12, 312e12)
    for hopper in ("H100", "H200"):
        assert (peak(hopper, "fp32"), peak(hopper, "tf32"), peak(hopper, "fp16")) == (67e12, 495e12, 989e12)
    assert POLARIS.per_node * POLARIS.accelerator.memory == 160 * 2**30  # as its page has it, for a node
    assert POLARIS.between_each == 12.5e9
    with pytest.raises(ValueError, match="no figures are known for 'cpu'.*measure"):
        peak("cpu", "fp32")
    with pytest.raises(ValueError, match="known for 'fp8'"):
        ACCELERATORS["H100"].peak("fp8")


# By hand, in GB with 42.95 GB an accelerator. 7B: stage 1 needs 28 + 84/N, so N >= 5.6, 2 nodes; stage 2 14 + 98/N,
# N >= 3.4; 13B: stage 2 26 + 182/N, N >= 10.7; stage 3 208/N + 1.3, N >= 5.0; 70B: stage 3 1120/N + 3.5, N >= 28.4;
# 405B: 6480/N + 12.86, N >= 215.4. Weights or gradients alone, 2 bytes each, rule out the rest.
NEVER = None
FEWEST = {
    "7B": (NEVER, 2, 1, 1),
    "13B": (NEVER, NEVER, 3, 2),
    "70B": (NEVER, NEVER, NEVER, 8),
    "405B": (NEVER, NEVER, NEVER, 54),
}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_fewest_nodes_of_polaris(model: object) -> None:
    found = [fewest_nodes(model, stage) for stage in range(4)]
    assert tuple(found) == FEWEST[model.name]
    for stage, nodes in enumerate(found):
        if nodes is not None:
            assert fitting(model, nodes, stage).fits
            assert nodes == 1 or not fitting(model, nodes - 1, stage).fits


def test_a_fitting_says_what_is_left_or_missing() -> None:
    tight = fitting(MODELS[0], 1, 2)
    assert (tight.ranks, tight.needed) == (4, 38_500_000_000) and tight.left == 40 * 2**30 - tight.needed
    assert "7B, ZeRO stage 2, 1 node (4 ranks): 38.5 GB of 42.9 GB: fits, 4.45 GB left" in str(tight)
    assert "plain data parallel, 2 nodes (8 ranks): 112 GB of 42.9 GB: 69.1 GB too many" in str(
        fitting(MODELS[0], 2, 0)
    )
    with pytest.raises(ValueError, match="Polaris has 1 to 560 nodes, not 561"):
        fitting(MODELS[0], 561, 0)


def test_the_table_of_fittings_has_a_row_for_each_model() -> None:
    table = fitting_table()
    lines = str(table).splitlines()
    assert "Polaris (4 x A100 40 GB, 40 GiB each)" in lines[0]
    assert [line.split()[0] for line in lines[2:]] == ["7B", "13B", "70B", "405B"]
    assert lines[5].split()[1:] == ["never", "never", "never", "54", "nodes"]
    markup = table._repr_html_()
    assert markup.count("<tr>") == 5 and "54 nodes" in markup


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="stage is 0 .*not 4"):
        model_state(10, stage=4)
    with pytest.raises(ValueError, match="rank 2 is none of 2 ranks"):
        model_state(10, ranks=2, stage=1, rank=2)
    with pytest.raises(ValueError, match="by 1 rank or more"):
        share(10, 0)
    with pytest.raises(ValueError, match="4 heads cannot be shared by 3"):
        activations_per_layer(**SHAPE, tensor_parallel=3)
    with pytest.raises(ValueError, match="'none', 'selective' or 'full', not 'some'"):
        activations_per_layer(**SHAPE, recomputation="some")
    with pytest.raises(ValueError, match="whole numbers, 1 or more"):
        activations_per_layer(batch=0, sequence=1, channels=1, heads=1)
    for call in (lambda: activations(layers=0, **SHAPE), lambda: layer_in_hand(10, 0, MIXED)):
        with pytest.raises(ValueError, match="at least one layer, not 0"):
            call()
    with pytest.raises(ValueError, match="1 or more"):
        gpt_parameters(layers=0, channels=1, vocabulary=1, block=1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: model_state(float("nan")),  # type: ignore[arg-type]
        lambda: model_state(10, precision="fp32"),  # type: ignore[arg-type]
        lambda: gpt_parameters(layers=float("nan"), channels=1, vocabulary=1, block=1),  # type: ignore[arg-type]
    ],
)
def test_nan_and_a_word_for_a_precision_are_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(ValueError):
        call()
