"""What an exported script is written from: values as text, and the names that a function takes from outside."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from kit.run.export_sources import global_names
from kit.run.export_values import expression


def test_values_survive_as_text() -> None:
    names = {"torch": torch, "dist": dist}
    values: list[Any] = [
        1,
        -0.5,
        float("-inf"),
        "a\n",
        b"b",
        None,
        True,
        (1,),
        (),
        [],
        [1, [2]],
        {1, 2},
        set(),
        {"a": (1, 2.0)},
    ]
    values += [range(3), 2 + 1j, torch.float16, frozenset({1})]
    for value in values:
        text = expression(value, lambda thing: thing.__name__)
        assert text is not None and eval(text, dict(names)) == value
    tensors = [torch.tensor(1.5), torch.rand(3, 2), torch.zeros(0, 3), torch.ones(9, 9), torch.tensor([True, False])]
    tensors += [torch.rand(2).to(torch.bfloat16), torch.tensor([[1 + 2j]]), torch.tensor([7]), torch.full((100,), 0.1)]
    for tensor in tensors:
        text = expression(tensor, str)
        assert text is not None
        again = eval(text, dict(names))
        assert again.dtype == tensor.dtype and torch.equal(again, tensor)
    drawn = eval(str(expression(torch.randint(3, 9, (500,)), str)), dict(names))
    assert drawn.shape == (500,) and drawn.min() >= 3 and drawn.max() <= 8 and drawn.dtype == torch.int64
    assert eval(str(expression(dist.ReduceOp.MAX, str)), dict(names)) == dist.ReduceOp.MAX


def test_only_names_from_outside_count() -> None:
    text = "def f(a, b=k):\n    c = [d for d in a if e(d)]\n    def g():\n        return c, h\n    return g\n"
    assert global_names(text) == ["e", "h", "k"]
