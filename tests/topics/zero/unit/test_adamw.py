"""AdamW written out is torch's; and neighbours in a shard step together as far as they are alike."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import Parameter

from kit.topics.data_parallel.reference.validation import listed
from kit.topics.zero.reference.adamw import DEFAULTS, ShardedAdamW
from kit.topics.zero.reference.by_hand import adamw_
from kit.topics.zero.reference.validation import check_choices, parameter_groups

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


PARAMETERS = [Parameter(torch.zeros(())) for _ in range(4)]
A, B, C, D = PARAMETERS


def sharded(n: int = 1, dtype: torch.dtype = torch.float32, master: torch.dtype | None = None) -> ShardedAdamW:
    """Of a shard of ten elements on one of n ranks: the end of A, then B, C and the beginning of D, then padding."""
    pieces = [(A, slice(0, 2)), (B, slice(2, 5)), (C, slice(5, 7)), (D, slice(7, 9))]
    shard = torch.arange(10.0, dtype=dtype)
    flat: Any = SimpleNamespace(shard=shard, unrounded=None, params=PARAMETERS, n=n, pieces=lambda: pieces)
    fast, slow = {**DEFAULTS, "lr": 0.5, "params": []}, {**DEFAULTS, "params": []}
    return ShardedAdamW(flat, {A: fast, B: fast, C: slow, D: slow}, master)


def test_neighbours_with_equal_steps_and_options_are_one_run() -> None:
    adam = sharded()
    adam.step(torch.ones(10), {A, B, C, D})
    assert [(at, step, options["lr"]) for at, step, options in adam.runs({A, B, C, D})] == [
        (slice(0, 5), 1, 0.5),
        (slice(5, 9), 1, 1e-3),
    ]
    assert [at for at, _, _ in adam.runs({A, C, D})] == [slice(0, 2), slice(5, 9)]
    adam.step(torch.ones(10), {A, C, D})
    assert [(at, step) for at, step, _ in adam.runs({A, B, C, D})] == [
        (slice(0, 2), 2),
        (slice(2, 5), 1),
        (slice(5, 9), 2),
    ]


def test_what_has_no_gradient_and_the_padding_stay() -> None:
    adam = sharded()
    adam.step(torch.ones(10), {A, C})
    changed = (adam.flat.shard != torch.arange(10.0)).tolist()
    assert changed == [True] * 2 + [False] * 3 + [True] * 2 + [False] * 3
    assert adam.exp_avg[9] == 0 and adam.exp_avg_sq[9] == 0


def test_the_sum_of_n_gradients_is_stepped_as_their_mean() -> None:
    of_three, alone = sharded(n=3), sharded()
    of_three.step(torch.full((10,), 3.0), {A, B, C, D})
    alone.step(torch.ones(10), {A, B, C, D})
    assert torch.equal(of_three.flat.shard, alone.flat.shard) and torch.equal(of_three.exp_avg, alone.exp_avg)


def test_a_master_takes_steps_that_would_be_rounded_away_in_16_bits() -> None:
    adam = sharded(dtype=torch.bfloat16, master=torch.float32)
    for _ in range(10):
        adam.step(torch.ones(10).bfloat16(), {C})
    assert adam.master is not None and adam.master.dtype == torch.float32
    assert adam.flat.shard[5] == 5 and 4.98 < adam.master[5] < 5, "ten steps of 1e-3 are below half a unit of 5"
    assert {x.dtype for x in adam.tensors()} == {torch.float32} and len(adam.tensors()) == 3


def test_groups_have_all_options_and_are_copies() -> None:
    a, b = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))
    given = [{"params": iter([a]), "weight_decay": 0.0}, {"params": [b], "lr": 1.0}]
    made = parameter_groups({a: "a", b: "b"}, given, {"lr": 0.5})
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
        parameter_groups({p: "p"}, None, options)


def test_groups_that_are_none_and_parameters_twice_are_refused() -> None:
    p = Parameter(torch.zeros(2))
    for groups in ([p], {"params": [p]}, [{"lr": 1.0}]):
        with pytest.raises(ValueError, match="groups are dicts in a list"):
            parameter_groups({p: "p"}, groups, {})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="twice, or in two"):
        parameter_groups({p: "p"}, [{"params": [p]}, {"params": [p]}], {})
    assert parameter_groups({p: "p"}, [{"params": p}], {})[0]["params"] == [p], "one alone needs no list"


def test_complex_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="p is complex"):
        check_choices({Parameter(torch.zeros(2, dtype=torch.complex64)): "p"}, 0, "fp32", "error")
