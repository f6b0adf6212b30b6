"""Each rung of the speed ladder changes what it says, and leaves the curve where it was within its number format.

Tolerance of a format: a product is rounded to 2**-9 (bf16) or 2**-12 (fp16) of its size, four blocks of four products
add up to 16 of them at worst, and AdamW carries that through five steps of 1e-2 each; losses are about 2.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kit.gpt.model import GPT, GPTConfig
from kit.gpt.sample import sample
from kit.gpt.trainer import Trainer
from kit.topics.gpt.reference import Adam, Layout, parallelize
from kit.topics.gpt.reference.ladder import Extras, ScaledLoss, check_device, remarks
from kit.topics.gpt.reference.replicas import Whole
from tests.topics.gpt.ranks import training

CPU = torch.device("cpu")
TOLERANCES = {
    Extras(): 1e-4,
    Extras(precision="bf16"): 16 * 2**-9 * 2.5,
    Extras(precision="fp16"): 16 * 2**-12 * 2.5,
    Extras(attention="plain"): 1e-4,
    Extras(adamw="plain"): 1e-4,
    Extras(recompute=True): 1e-4,
    Extras(recompute=True, attention="plain", precision="bf16"): 16 * 2**-9 * 2.5,
}
T = training.SIZES.block_size


class Seen(TorchDispatchMode):
    """Formats of the matrices that are multiplied, and how often a T x T matrix is made for each head."""

    def __init__(self) -> None:
        super().__init__()
        self.formats: set[torch.dtype] = set()
        self.squares: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if name in ("mm", "addmm"):
            self.formats.add(args[-1].dtype)
        if isinstance(made, torch.Tensor) and made.shape[-2:] == (T, T) and made.dim() == 4:
            self.squares.append(name)
        return made


@contextmanager
def seen_in_a_step(laddered: Trainer) -> Iterator[Seen]:
    with Seen() as seen:
        laddered.step()
    yield seen


@pytest.mark.parametrize("extras", TOLERANCES, ids=str)
def test_the_curve_stays_where_it_was(extras: Extras) -> None:
    right = training.serial(tied=True)["loss"]
    losses = [step.loss for step in training.trainer("single", 1, extras=extras)]
    assert losses == pytest.approx(right, abs=TOLERANCES[extras])


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_products_are_in_the_format_and_weights_stay_in_fp32(precision: str, dtype: torch.dtype) -> None:
    laddered = training.trainer("single", 1, extras=Extras(precision=precision))
    with seen_in_a_step(laddered) as seen:
        assert seen.formats == {dtype}
    assert {x.dtype for x in laddered.strategy.state().values()} == {torch.float32}


@pytest.mark.parametrize("recompute", [False, True])
def test_only_plain_attention_has_a_matrix_of_all_against_all(recompute: bool) -> None:
    """In the backward pass too, where it may be computed again."""
    with seen_in_a_step(training.trainer("single", 1, extras=Extras(recompute=recompute))) as seen:
        assert seen.squares == []
    plain = Extras(attention="plain", recompute=recompute)
    with seen_in_a_step(training.trainer("single", 1, extras=plain)) as seen:
        blocks, micro_batches = training.SIZES.n_layer, 4
        assert seen.squares.count("_safe_softmax") == blocks * micro_batches * (1 + recompute)


def test_a_scale_is_halved_where_gradients_are_infinite_and_doubled_after_good_steps() -> None:
    """The step's gradients are those of the loss, whatever the scale has been; nothing is left out."""
    laddered = training.trainer("single", 1, extras=Extras(precision="fp16"))
    scaling: Any = laddered.strategy.numbers  # type: ignore[attr-defined]
    assert scaling.scale == 2.0**16
    first = laddered.step()
    assert scaling.scale == 2.0**16
    other = training.trainer("single", 1, extras=Extras(precision="fp16"))
    larger = ScaledLoss(CPU, scale=2.0**40, patience=2)
    other.strategy.numbers = larger  # type: ignore[attr-defined]
    step = other.step()
    assert 1 < larger.scale < 2.0**40
    assert (step.loss, step.norm) == pytest.approx((first.loss, first.norm), rel=1e-2)
    halved = larger.scale
    larger.patience = 1
    other.step()
    assert larger.scale == 2 * halved


def test_what_no_scale_helps_is_said_by_the_trainer() -> None:
    laddered = training.trainer("single", 1, extras=Extras(precision="fp16"))
    laddered.strategy.module.tokens.weight.data[0, 0] = float("nan")  # type: ignore[attr-defined]
    with pytest.raises(FloatingPointError, match="no weight was changed"):
        laddered.step()


def test_a_gradient_too_small_for_fp16_survives_by_its_scale() -> None:
    x = torch.tensor([1.0], dtype=torch.float16, requires_grad=True)
    lost = (x * 1e-4).float() * 1e-5
    lost.backward()
    assert x.grad is not None and x.grad.item() == 0
    w = torch.nn.Parameter(torch.tensor([1.0]))
    scaling = ScaledLoss(CPU)
    with scaling.forward():
        loss = (w.half() * 1e-4).float() * 1e-5
    scaling.scaled(loss).backward()
    assert scaling.settled(Whole(torch.optim.SGD([w]), [w])) and w.grad is not None
    assert w.grad.item() == pytest.approx(1e-9, rel=1e-2)


@pytest.mark.parametrize(("how", "fused", "foreach"), [("fused", True, None), ("plain", None, False)])
def test_adamw_is_fused_or_goes_tensor_by_tensor(how: str, fused: bool | None, foreach: bool | None) -> None:
    strategy: Any = training.trainer("single", 1, extras=Extras(adamw=how)).strategy
    (group, *_) = strategy.stepper.optimizer.param_groups
    assert (group["fused"], group["foreach"]) == (fused, foreach)


def test_tokens_that_pad_a_vocabulary_are_never_predicted() -> None:
    """Though a model may think most of them."""
    torch.manual_seed(0)
    model = GPT(GPTConfig.named("tiny", vocab_size=64))
    with torch.no_grad():
        model.tokens.weight[50:] *= 100
    begun = torch.zeros(4, 1, dtype=torch.int64)
    for cache in (False, True):
        free = sample(model, begun, 20, cache=cache, generator=torch.Generator().manual_seed(0))
        assert free.max() >= 50
        said = sample(model, begun, 20, cache=cache, vocabulary=50, generator=torch.Generator().manual_seed(0))
        assert said.max() < 50


def test_what_a_device_lacks_is_said() -> None:
    with pytest.raises(ValueError, match="TF32 is what NVIDIA's matrix units have from Ampere on, and this is a CPU"):
        training.trainer("single", 1, extras=Extras(precision="tf32"))
    assert "slow" in remarks(Extras(precision="fp16"), CPU)[0]
    assert remarks(Extras(precision="bf16"), CPU) == []
    with pytest.raises(ValueError, match="precision is 'fp8': choose fp32 or tf32"):
        Extras(precision="fp8")


def test_a_compiler_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ValueError, match=r"a C\+\+ compiler .*: install it, or leave it out"):
        check_device(Extras(compile="inductor"), CPU)
    check_device(Extras(compile="eager"), CPU)


def test_layers_in_shards_that_drop_elements_are_not_recomputed() -> None:
    with pytest.raises(ValueError, match="set dropout to 0"):
        parallelize(GPT(GPTConfig.named("tiny", dropout=0.1)), Layout(tp=2), Adam(), extras=Extras(recompute=True))
