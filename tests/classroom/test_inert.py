"""Values come back as they were, and bytes of a stranger's make nothing."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kit.classroom import inert
from kit.classroom.inert import Opaque, Refused, decode, encode

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
)


@given(PLAIN)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    back = decode(encode(value))
    assert back == value and repr(back) == repr(value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_tensors_come_back_with_shape_and_type(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.ones(shape).to(dtype)
    back = decode(encode(tensor))
    assert back.dtype == dtype and back.shape == tensor.shape and torch.equal(back, tensor)


def test_one_tensor_in_two_places_is_one_again() -> None:
    x = torch.arange(6.0).reshape(2, 3).T.requires_grad_()
    first, second, other = decode(encode([x, (x,), x.clone()]))
    assert first is second[0] and first is not other
    assert first.requires_grad and torch.equal(first, x)
    assert math.isnan(decode(encode(float("nan"))))


class Liar(torch.Tensor):
    def __eq__(self, other: object) -> bool:  # type: ignore[override]
        return True


def test_whatever_else_is_its_name() -> None:
    liar = decode(encode(torch.ones(2).as_subclass(Liar)))
    assert type(liar) is torch.Tensor
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    assert decode(encode([object(), len])) == [Opaque("object"), Opaque("builtin_function_or_method")]
    assert "nested too deeply" in repr(decode(encode(deep)))


def message(root: object, table: object = (), data: bytes = b"") -> bytes:
    text = json.dumps([root, table]).encode()
    return struct.pack(">Q", len(text)) + text + data


HOSTILE = {
    "nothing": b"",
    "half": encode([1, 2])[:-1],
    "a length beyond the end": struct.pack(">Q", 2**63) + b"[]",
    "an unknown kind": message(["x", 1]),
    "a tensor that is not there": message(["T", 5]),
    "a tensor larger than its bytes": message(["T", 0], [["float32", [10**9], False]]),
    "a tensor of a negative size": message(["T", 0], [["float32", [-1], False]]),
    "a type that is none": message(["T", 0], [["load", [1], False]], b"1234"),
    "a key that cannot be one": message(["d", [[["l", []], 1]]]),
    "brackets without end": struct.pack(">Q", 200_000) + b"[" * 200_000,
    "a value of three parts": message(["i", "0x1", 3]),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_bytes_of_a_stranger_are_refused(data: bytes) -> None:
    with pytest.raises(Refused):
        decode(data)


def test_too_many_values_and_bytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inert, "WIDEST", 100)
    with pytest.raises(Refused, match="too large"):
        decode(encode([None] * 200))
    monkeypatch.setattr(inert, "MOST", 10)
    with pytest.raises(Refused, match="are read"):
        decode(encode("x" * 20))


def test_a_tensor_that_was_written_down_can_still_give_its_memory_back() -> None:
    x = torch.ones(8)
    inert.encode([x, x[2:4]])
    x.untyped_storage().resize_(0)
    assert x.untyped_storage().size() == 0
