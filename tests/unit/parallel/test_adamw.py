"""AdamW written out is torch's; and neighbours in a share step together as far as they are alike."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import Parameter

from kit.parallel.adamw import DEFAULTS, Moments, adamw_
from kit.parallel.as_optimizer import AsOptimizer
from kit.parallel.refusals import check_choices, grouped, listed

OPTIONS: list[dict[str, Any]] = [{}, {"lr": 0.1, "betas": (0.5, 0.7), "eps": 1e-3, "weight_decay": 0.3}]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_twenty_steps_are_those_of_torch(dtype: torch.dtype, options: dict[str, Any]) -> None:
    """The same operations in the same order: off by a unit in the last place where vector instructions differ."""
    draw = torch.Generator().manual_seed(1)
    w = torch.randn(100, generator=draw, dtype=dtype)
    wanted = torch.nn.Parameter(w.clone())
    optimizer = torch.optim.AdamW([wanted], **options)
    m, v = torch.zeros_like(w), torch.zeros_like(w)
    for step in range(1, 21):
        g = torch.randn(100, generator=draw, dtype=dtype) * 10.0**-step
        wanted.grad = g.clone()
        optimizer.step()
        adamw_(w, g, m, v, step, **options)
    unit = torch.finfo(dtype).eps
    torch.testing.assert_close(w, wanted.detach(), rtol=20 * unit, atol=20 * unit)
    state = optimizer.state[wanted]
    torch.testing.assert_close(m, state["exp_avg"], rtol=20 * unit, atol=0)
    torch.testing.assert_close(v, state["exp_avg_sq"], rtol=20 * unit, atol=0)


def test_defaults_are_those_of_torch() -> None:
    (group,) = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))]).param_groups
    assert {key: group[key] for key in DEFAULTS} == DEFAULTS


def moments(**more: Any) -> tuple[Moments, torch.Tensor]:
    """Of a share of ten elements: parameters 0 (of which it has the end), 1, 2 and 3 (the beginning), then padding."""
    pieces = [(0, slice(0, 2)), (1, slice(2, 5)), (2, slice(5, 7)), (3, slice(7, 9))]
    share = torch.arange(10.0)
    flat: Any = SimpleNamespace(share=share, exact=None, params=[None] * 4, pieces=lambda: pieces)
    fast, slow = {**DEFAULTS, "lr": 0.5, "params": []}, {**DEFAULTS, "params": []}
    return Moments(flat, [fast, fast, slow, slow], **more), share


def test_neighbours_with_equal_steps_and_options_are_one_run() -> None:
    own, share = moments()
    own.step(share, torch.ones(10), 1, {0, 1, 2, 3})
    assert [(at, step, options["lr"]) for at, step, options in own.runs({0, 1, 2, 3})] == [
        (slice(0, 5), 1, 0.5),
        (slice(5, 9), 1, 1e-3),
    ]
    own.step(share, torch.ones(10), 1, {0, 2, 3})
    assert [(at, step) for at, step, _ in own.runs({0, 1, 2, 3})] == [
        (slice(0, 2), 2),
        (slice(2, 5), 1),
        (slice(5, 9), 2),
    ]


def test_what_has_no_gradient_and_the_padding_stay() -> None:
    own, share = moments()
    own.step(share, torch.ones(10), 1, {0, 2})
    changed = (share != torch.arange(10.0)).tolist()
    assert changed == [True] * 2 + [False] * 3 + [True] * 2 + [False] * 3
    assert own.m[9] == 0 and own.v[9] == 0


def test_the_sum_of_n_gradients_is_stepped_as_their_mean() -> None:
    own, share = moments()
    other, beside = moments()
    own.step(share, torch.full((10,), 3.0), 3, {0, 1, 2, 3})
    other.step(beside, torch.ones(10), 1, {0, 1, 2, 3})
    assert torch.equal(share, beside) and torch.equal(own.m, other.m)


def test_a_master_sees_steps_that_16_bits_would_swallow() -> None:
    own, _ = moments(master=torch.float32)
    weights = torch.arange(10.0).bfloat16()
    for _ in range(10):
        own.step(weights, torch.ones(10).bfloat16(), 1, {2})
    assert own.master is not None and own.master.dtype == torch.float32
    assert weights[5] == 5 and 4.98 < own.master[5] < 5, "ten steps of 1e-3 are below half a unit of 5 in 16 bits"
    assert {x.dtype for x in own.tensors()} == {torch.float32} and len(own.tensors()) == 3


def test_groups_have_all_options_and_are_copies() -> None:
    a, b = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))
    given = [{"params": iter([a]), "weight_decay": 0.0}, {"params": [b], "lr": 1.0}]
    made = grouped({a: "a", b: "b"}, given, {"lr": 0.5})
    assert made == [{**DEFAULTS, "lr": 0.5, "weight_decay": 0.0, "params": [a]}, {**DEFAULTS, "lr": 1.0, "params": [b]}]
    assert "betas" not in given[1]


def test_long_lists_end_in_dots() -> None:
    assert listed(["a", "b", "c"]) == "a, b, c" and listed(list("abcd")) == "a, b, c, ..."


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lr": float("nan")}, "numbers from 0 on, betas two"),
        ({"weight_decay": -1}, "numbers from 0 on, betas two"),
        ({"betas": 0.9}, "numbers from 0 on, betas two"),
        ({"betas": (0.9, 1.0)}, "numbers from 0 on, betas two"),
        ({"eps": None}, "numbers from 0 on, betas two"),
    ],
    ids=str,
)
def test_numbers_that_adamw_cannot_use_are_refused(options: dict[str, Any], words: str) -> None:
    p = Parameter(torch.zeros(2))
    with pytest.raises(ValueError, match=words):
        grouped({p: "p"}, None, options)


def test_groups_that_are_none_and_parameters_twice_are_refused() -> None:
    p = Parameter(torch.zeros(2))
    for groups in ([p], {"params": [p]}, [{"lr": 1.0}]):
        with pytest.raises(ValueError, match="groups are dicts in a list"):
            grouped({p: "p"}, groups, {})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="twice, or in two"):
        grouped({p: "p"}, [{"params": [p]}, {"params": [p]}], {})
    assert grouped({p: "p"}, [{"params": p}], {})[0]["params"] == [p], "one alone needs no list"


def test_complex_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="p is complex"):
        check_choices({Parameter(torch.zeros(2, dtype=torch.complex64)): "p"}, 0, "fp32", "error")


def test_a_schedule_writes_to_the_groups_that_are_looked_up_and_nothing_replaces_them() -> None:
    groups, called = grouped({Parameter(torch.zeros(2)): "w"}, None, {"lr": 0.5}), []
    optimizer = AsOptimizer(groups, lambda: called.append("step"), lambda: called.append("forget"), lambda norm: norm)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    optimizer.step()
    optimizer.zero_grad()
    schedule.step()
    assert called == ["step", "forget"] and groups[0]["lr"] == 0.25
    for replaced in (optimizer.state_dict, lambda: optimizer.load_state_dict({})):
        with pytest.raises(NotImplementedError, match="with zero.whole"):
            replaced()
    with pytest.raises(ValueError, match="settled when the model is sharded"):
        optimizer.add_param_group({"params": [Parameter(torch.zeros(1))]})
    with pytest.raises(ValueError, match="takes no closure"):
        optimizer.step(lambda: 0.0)  # type: ignore[arg-type]
