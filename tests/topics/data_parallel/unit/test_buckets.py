"""How gradients are put into buckets, without ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import Parameter

from kit.topics.data_parallel.reference.buckets import Bucket, assign, bytes_of
from tests.topics.collectives import traffic


def parameters(*counts: int, dtype: torch.dtype = torch.float32) -> list[Parameter]:
    return [Parameter(torch.zeros(count, dtype=dtype)) for count in counts]


def places(buckets: list[list[Parameter]], made: list[Parameter]) -> list[list[int]]:
    index = {p: i for i, p in enumerate(made)}
    return [[index[p] for p in bucket] for bucket in buckets]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 400), st.integers(1, 400))
def test_each_parameter_once_from_the_last_and_no_bucket_too_large(counts: list[int], limit: int, first: int) -> None:
    made = parameters(*counts)
    buckets = assign(made, limit, first)
    assert [p for bucket in places(buckets, made) for p in bucket] == list(reversed(range(len(made))))
    for number, bucket in enumerate(buckets):
        assert bytes_of(bucket) <= (limit if number else first) or len(bucket) == 1
    for number, (one, following) in enumerate(zip(buckets, buckets[1:], strict=False)):
        assert bytes_of(one) + bytes_of(following[:1]) > (limit if number else first), "it would have fitted"


def test_a_small_first_bucket_and_a_parameter_too_large_for_any() -> None:
    made = parameters(5, 100, 5, 5, 5)
    assert places(assign(made, 48, 20), made) == [[4], [3, 2], [1], [0]]


def test_dtypes_do_not_share() -> None:
    made = [
        *parameters(2, 2),
        *parameters(2, dtype=torch.bfloat16),
        *parameters(2),
        *parameters(2, dtype=torch.bfloat16),
    ]
    assert places(assign(made, 1000, 1000), made) == [[4, 2], [3, 1, 0]]


def test_a_gradient_lives_in_its_bucket() -> None:
    a, b = Parameter(torch.zeros(2, 3)), Parameter(torch.zeros(4))
    bucket = Bucket([b, a])
    a.grad, b.grad = torch.full((2, 3), 6.0), torch.full((4,), 9.0)
    bucket.take(a, 3)
    assert bucket.missing == 1
    bucket.take(b, 3)
    assert bucket.missing == 0
    assert bucket.flat.tolist() == [3.0] * 4 + [2.0] * 6
    bucket.flat *= 10  # what arrives in the bucket is in the gradients
    assert torch.equal(a.grad, torch.full((2, 3), 20.0)) and torch.equal(b.grad, torch.full((4,), 30.0))
    bucket.empty()
    bucket.take(a, 2)  # where it lives already
    assert torch.equal(a.grad, torch.full((2, 3), 10.0)) and bucket.missing == 1


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="a bucket of 0 bytes holds nothing"):
        assign(parameters(1), 0, 5)


@given(st.integers(1, 20), st.lists(st.integers(0, 99), min_size=1, max_size=9))
def test_rings_move_on_average_what_the_formula_says(n: int, counts: list[int]) -> None:
    loads = [traffic.averaging(n, rank, counts) for rank in range(n)]
    assert sum(load.bytes_sent for load in loads) == pytest.approx(n * traffic.averaging_algorithmic(n, sum(counts)))
    assert all(load.sent == load.received == 2 * (n - 1) * len(counts) for load in loads)


def test_the_formula_of_the_books() -> None:
    """2 P (N-1)/N elements: 1000 float32 on 4 ranks, 6000 bytes a rank, in one piece or in two that 4 divides."""
    assert traffic.averaging_algorithmic(4, 1000) == 6000
    for counts in ([1000], [600, 400]):
        assert [traffic.averaging(4, rank, counts).bytes_sent for rank in range(4)] == [6000] * 4


@pytest.mark.parametrize("size", [float("nan"), "1MB", None, -1, 0.5], ids=str)
def test_a_size_that_is_none_is_refused(size: Any) -> None:
    with pytest.raises(ValueError, match="holds nothing: give 1 or more"):
        assign(parameters(1), size, 1)
