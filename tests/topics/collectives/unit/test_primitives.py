"""Cutting and pairing, as arithmetic."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kit.topics.collectives.reference.primitives import buffers_around, chunk_sizes, cut, doublings

ranks = st.integers(1, 70)
counts = st.integers(0, 5000)


@given(counts, ranks)
def test_chunk_sizes_are_those_of_tensor_split(count: int, n: int) -> None:
    sizes = chunk_sizes(count, n)
    assert sizes == [len(chunk) for chunk in torch.empty(count).tensor_split(n)]
    assert sum(sizes) == count and len(sizes) == n and max(sizes) - min(sizes) <= 1


@given(st.integers(0, 40), ranks)
def test_cut_copies_in_order(count: int, n: int) -> None:
    x = torch.arange(count * 2).view(count, 2)
    chunks = cut(x, n)
    assert torch.equal(torch.cat(chunks), x)
    assert all(chunk.is_contiguous() for chunk in chunks)
    for chunk in chunks:
        chunk += 1
    assert torch.equal(x, torch.arange(count * 2).view(count, 2))


@given(ranks)
def test_doublings_reach_every_rank_once(n: int) -> None:
    steps = doublings(n)
    assert len(steps) == (n - 1).bit_length()
    told = [0]
    for step in steps:
        told += [seat + step for seat in told if seat + step < n]
    assert sorted(told) == list(range(n))


@given(ranks)
def test_the_last_doubling_up_to_n_is_the_largest_power_of_two_within(n: int) -> None:
    p = doublings(n + 1)[-1]
    assert p <= n < 2 * p and p & (p - 1) == 0


def test_a_rank_outside_the_group_is_told_so() -> None:
    for ask in (lambda: chunk_sizes(4, -1), lambda: doublings(-1), lambda: doublings(0)):
        with pytest.raises(ValueError, match="member of the group"):
            ask()


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="add up to 3"):
        cut(torch.zeros(4), 2, [1, 2])
    with pytest.raises(ValueError, match="each 0 or more"):
        buffers_around(torch.zeros(5), 0, [5, -1], 2)
    with pytest.raises(ValueError, match="is 4 rows in the sizes given, but it holds 5"):
        buffers_around(torch.zeros(5), 1, [5, 4], 2)
    with pytest.raises(ValueError, match="0 or more"):
        chunk_sizes(-1, 2)
