"""Returned values as a person reads them."""

from __future__ import annotations

import torch

from kit.run.results import format_results, format_value


def test_one_line_per_rank():
    assert format_results([1.0, None]) == ["rank 0: 1", "rank 1: None"]


def test_silence_when_nothing_was_returned():
    assert format_results([None, None]) == []


def test_tensors():
    assert format_value(torch.tensor([1000.0, 0.5])) == "[1000, 0.5]"
    assert format_value(torch.tensor(3)) == "3"
    assert format_value(torch.tensor([[1, 2], [3, 4]])) == "[[1, 2], [3, 4]]"
    assert format_value(torch.zeros(20, 3)) == "20 x 3 of float32"


def test_what_holds_tensors_and_what_is_no_tensor():
    assert format_value([torch.ones(2), "two", (1, 2.5)]) == "[[1, 1], two, [1, 2.5]]"
    assert format_value({"a": 1}) == "{'a': 1}"
