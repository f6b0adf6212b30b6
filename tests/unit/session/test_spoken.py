"""Returned values as a person reads them."""

from __future__ import annotations

import torch

from kit.session.spoken import by_rank, words


def test_one_line_per_rank():
    assert by_rank([1.0, None]) == ["rank 0: 1", "rank 1: None"]


def test_silence_when_nothing_was_returned():
    assert by_rank([None, None]) == []


def test_tensors():
    assert words(torch.tensor([1000.0, 0.5])) == "[1000, 0.5]"
    assert words(torch.tensor(3)) == "3"
    assert words(torch.tensor([[1, 2], [3, 4]])) == "[[1, 2], [3, 4]]"
    assert words(torch.zeros(20, 3)) == "20 x 3 of float32"


def test_what_holds_tensors_and_what_is_no_tensor():
    assert words([torch.ones(2), "two", (1, 2.5)]) == "[[1, 1], two, [1, 2.5]]"
    assert words({"a": 1}) == "{'a': 1}"
