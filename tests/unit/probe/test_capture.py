"""Copies of what is in scope."""

from __future__ import annotations

import math
import re
import sys
from types import FrameType
from typing import Any

import torch
from torch import nn

from kit.probe.capture import Capture, summary
from kit.probe.code import Code
from kit.probe.delta import Decoder, Encoder
from kit.trace.facts import Frame

HERE = Code({__file__: ()}, __file__)


def _frame(values: dict[str, Any]) -> FrameType:
    space: dict[str, Any] = {"sys": sys, **values}
    body = "".join(f"    {name} = {name}_\n" for name in values)
    parameters = ", ".join(f"{name}_" for name in values)
    source = f"def learner({parameters}):\n{body}    return sys._getframe()\n"
    exec(compile(source, __file__, "exec"), space)
    frame: FrameType = space["learner"](*values.values())
    return frame


def captured(budget: int = 1 << 20, **values: Any) -> dict[str, Any]:
    frame = Capture(HERE, budget)._frame(_frame(values))
    return {fact.name: fact for fact in frame.tensors if not re.split(r"[.[]", fact.name)[0].endswith("_")}


def test_a_small_tensor_is_copied_and_does_not_change_afterwards() -> None:
    x = torch.arange(4.0)
    fact = captured(x=x)["x"]
    x.fill_(9)
    assert fact.values.tolist() == [0, 1, 2, 3]
    assert (fact.shape, fact.dtype, fact.device) == ((4,), "float32", "cpu")


def test_views_share_their_storage_and_know_their_offset() -> None:
    x = torch.arange(8.0)
    facts = captured(x=x, chunks=list(x.tensor_split(3)))
    assert {f.storage for f in facts.values()} == {facts["x"].storage}
    assert [facts[f"chunks[{i}]"].offset for i in range(3)] == [0, 3, 6]


def test_modules_show_parameters_and_the_gradients_that_exist() -> None:
    model = nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    model.bias.grad = None
    assert set(captured(model=model)) == {"model.weight", "model.weight.grad", "model.bias"}


def test_half_precision_becomes_readable_numbers() -> None:
    assert captured(x=torch.tensor([1.5], dtype=torch.bfloat16))["x"].values.tolist() == [1.5]


def test_a_large_tensor_is_summarised_faithfully() -> None:
    x = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    x[3], x[4] = math.nan, math.inf
    fact = captured(x=x)["x"]
    assert fact.values is None
    finite = x[torch.isfinite(x)].double()
    assert (fact.summary.nans, fact.summary.infs) == (1, 1)
    assert math.isclose(fact.summary.mean, finite.mean().item(), abs_tol=1e-6)  # float32 sums of 1e5 elements
    assert math.isclose(fact.summary.std, finite.std(correction=0).item(), rel_tol=1e-5)
    assert (fact.summary.minimum, fact.summary.maximum) == (finite.min().item(), finite.max().item())


def test_nothing_finite_is_left_to_average() -> None:
    assert summary(torch.full((300,), math.inf)).infs == 300


def test_numbers_and_strings_are_scalars_and_other_things_are_left_out() -> None:
    frame = Capture(HERE, 1000)._frame(_frame({"n": 3, "name": "ring", "pair": (1, 2), "lock": object()}))
    assert dict(frame.scalars).items() >= {"n": "3", "name": "'ring'", "pair": "(1, 2)"}.items()
    assert "lock" not in dict(frame.scalars)


def test_what_has_not_changed_is_the_same_fact_and_travels_once() -> None:
    capture = Capture(HERE, 1 << 20)
    x = torch.arange(4.0)
    first, second = capture._frame(_frame({"x": x})), capture._frame(_frame({"x": x}))
    assert first.tensors[0] is second.tensors[0]
    encoder, decoder = Encoder(), Decoder()
    one, new = encoder.encode((first,))
    again, none = encoder.encode((second,))
    assert new and not none
    decoded: tuple[Frame, ...] = decoder.decode(one, new)
    assert decoded[0].tensors[0].values.tolist() == [0, 1, 2, 3]
    assert decoder.decode(again, none)[0].tensors[0] is decoded[0].tensors[0]


def test_a_spent_budget_leaves_tensors_out() -> None:
    capture = Capture(HERE, 10)
    capture._frame(_frame({"x": torch.ones(4)}))
    assert capture.spent and capture._frame(_frame({"x": torch.ones(4)})).tensors == ()
