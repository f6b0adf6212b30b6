"""What an exported script is written from: values as text, and the names that a function takes from outside."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from kit.run.export_sources import Sources, global_names
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


def test_what_another_environment_installed_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a cluster whose modules put torch on the path beside the environment that a person made."""
    elsewhere = tmp_path / "lib" / "python3" / "site-packages"
    elsewhere.mkdir(parents=True)
    (elsewhere / "brought_along.py").write_text("def double(x):\n    return 2 * x\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(elsewhere))
    double = importlib.import_module("brought_along").double
    sources = Sources()
    sources.add(double)
    assert not sources.blocks and "brought_along" in str(sources.imports)
