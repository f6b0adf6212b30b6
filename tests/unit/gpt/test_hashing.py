"""Hashes tell the least difference, and where it came first."""

from __future__ import annotations

import pytest
import torch

from kit.gpt.hashing import first_difference, hashes

X = torch.arange(6.0)


def test_equal_tensors_have_equal_hashes_and_no_others() -> None:
    (one,) = hashes({"x": X}).values()
    assert hashes({"x": X.clone()})["x"] == hashes({"x": X.repeat(2)[:6]})["x"] == one
    last_bit = X.clone()
    last_bit[5] = torch.nextafter(X[5], torch.tensor(9.0))
    others = [last_bit, X.double(), X.view(2, 3), X.view(torch.int32), torch.zeros(0), torch.tensor(1.0)]
    assert len({one, *(hashes({"x": other})["x"] for other in others)}) == 7
    assert hashes({"x": X.view(2, 3).t()})["x"] == hashes({"x": X.view(2, 3).t().contiguous()})["x"]


def test_the_first_tensor_and_moment_are_named() -> None:
    same, later = {"a": "1", "b": "2"}, {"a": "1", "b": "3"}
    assert first_difference({"rank 0": [same, later], "rank 1": [same, later]}) == ""
    runs = {"rank 0": [same, same], "rank 1": [same, same], "rank 2": [same, later]}
    assert first_difference(runs) == "b is the first to differ, after step 1: rank 2 from rank 0"
    assert "before the first step: rank 1" in first_difference({"rank 0": [same], "rank 1": [later]})
    assert first_difference({"rank 0": [same], "rank 1": [{"a": "1"}]}) == "", "what one alone holds says nothing"
    with pytest.raises(ValueError, match="hashes of 1 moments, rank 1 of 2"):
        first_difference({"rank 0": [same], "rank 1": [same, same]})
