"""Looking at what is in scope must neither fail, nor wait, nor change anything, whatever lies there."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor

from kit.probe.capture import Capture, summary
from kit.probe.code import Code
from kit.probe.operations import READERS, region
from kit.trace.facts import Frame

HERE = Code({__file__: ()}, __file__)


def look() -> Frame:
    """The frame of the caller, as it is captured."""
    frame: FrameType = sys._getframe(1)
    return Capture(HERE, 1 << 20)._frame(frame)


def test_a_module_that_is_being_made() -> None:
    seen: list[Frame] = []

    class Net(nn.Module):
        def __init__(self) -> None:
            seen.append(look())
            super().__init__()
            self.layer = nn.Linear(2, 2)
            seen.append(look())

    Net()
    before, after = seen
    assert not [f for f in before.tensors if f.name.startswith("self")]
    assert {f.name for f in after.tensors} == {"self.layer.weight", "self.layer.bias"}


def let_go() -> torch.Tensor:
    freed = torch.ones(4)
    freed.untyped_storage().resize_(0)
    return freed


ODD: dict[str, Callable[[], Any]] = {
    "without memory any more": let_go,
    "on no device": lambda: torch.ones(3, device="meta"),
    "sparse": lambda: torch.eye(4).to_sparse(),
    "sparse by rows": lambda: torch.eye(4).to_sparse_csr(),
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
    "half complex": lambda: torch.ones(3, dtype=torch.complex32),
    "of unknown size": lambda: nn.LazyLinear(3),
}


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
@pytest.mark.filterwarnings("ignore")
def test_what_has_no_values_is_named_without_them(make: Callable[[], Any]) -> None:
    odd = make()
    frame = look()
    assert type(odd).__name__
    shown = [f for f in frame.tensors if f.name == "odd"]
    told = [text for name, text in frame.scalars if name == "odd"]
    assert [f.values for f in shown] == [None] or "not readable here" in told[0]


@pytest.mark.parametrize(
    ("tensor", "values"),
    [
        (torch.tensor([1 + 2j]).conj(), [1 - 2j]),
        (torch.tensor([1 + 2j]).conj().imag, [-2.0]),
        (torch.tensor([3], dtype=torch.uint16), [3]),
        (torch.tensor([1.5]).to(torch.float8_e4m3fn), [1.5]),
    ],
    ids=["conjugate", "negative view", "uint16", "float8"],
)
def test_unusual_numbers_are_copied(tensor: torch.Tensor, values: list[Any]) -> None:
    (fact,) = [f for f in look().tensors if f.name == "tensor"]
    assert fact.values is not None and fact.values.tolist() == values


def test_inside_a_transform_of_functions() -> None:
    seen: list[Frame] = []

    def doubled(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        seen.append(look())
        return y

    assert torch.func.vmap(doubled)(torch.ones(3)).tolist() == [2.0] * 3
    assert "not readable here" in dict(seen[0].scalars)["y"]


def test_a_result_on_its_way_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def waits(self: AsyncCollectiveTensor) -> torch.Tensor:
        raise AssertionError("it was waited for")

    monkeypatch.setattr(AsyncCollectiveTensor, "trigger_wait", waits)
    result = AsyncCollectiveTensor(torch.ones(2))
    (fact,) = [f for f in look().tensors if f.name == "result"]
    assert fact.values is not None and fact.values.tolist() == [1.0, 1.0]
    assert fact.storage == result.elem.untyped_storage()._cdata
    assert not result.completed


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30, 1e300])
def test_a_summary_neither_overflows_nor_vanishes(size: float) -> None:
    x = torch.tensor([-size, size] * 500, dtype=torch.float64)
    x = x if size > 1e38 else x.float()
    seen = summary(x)
    for got, wanted in ((seen.minimum, -size), (seen.maximum, size), (seen.std, size)):
        assert math.isclose(got, wanted, rel_tol=1e-6)  # float32 holds seven digits
    assert abs(seen.mean) <= 1e-6 * size


def test_whole_numbers_keep_their_digits() -> None:
    seen = summary(torch.full((300,), 2**24 + 1))
    assert (seen.minimum, seen.mean, seen.head[0], seen.std) == (2**24 + 1, 2**24 + 1, 2**24 + 1, 0.0)


def test_equal_elements_do_not_deviate() -> None:
    seen = summary(torch.full((1_000_003,), 0.1))
    assert (seen.std, seen.mean) == (0.0, seen.maximum)


def test_infinities_of_both_signs_are_told_from_nan() -> None:
    x = torch.arange(300.0)
    x[0], x[1], x[2] = math.inf, -math.inf, math.nan
    seen = summary(x)
    assert (seen.minimum, seen.maximum, seen.nans, seen.infs) == (3.0, 299.0, 1, 2)


def test_an_operation_on_a_sparse_tensor() -> None:
    call = READERS["allreduce"]([torch.eye(3).to_sparse()])
    (found,) = map(region, call.seen())
    assert (found.shape, found.storage, found.offset) == ((3, 3), 0, 0)


def test_a_gather_counts_what_a_rank_hands_in() -> None:
    assert READERS["gather"]([[]], [torch.ones(6)]).payload == 24
    assert READERS["scatter"]([torch.ones(6)], [[]]).payload == 24
