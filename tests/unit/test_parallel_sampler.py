"""Every rank its own share: nothing twice, nothing lost that need not be, and batches that make up the whole."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from kit.parallel.sampler import ShareSampler

ranks = st.integers(1, 9)
counts = st.integers(0, 200)


def shares(count: int, n: int, rest: str, epoch: int = 0, **options: object) -> list[list[int]]:
    found = []
    for rank in range(n):
        sampler = ShareSampler(count, rank, n, rest=rest, **options)  # type: ignore[arg-type]
        sampler.set_epoch(epoch)
        found.append(list(sampler))
        assert len(sampler) == len(found[-1])
    return found


@given(counts, ranks)
def test_keeping_the_rest_every_sample_goes_to_one_rank(count: int, n: int) -> None:
    found = shares(count, n, "keep")
    assert sorted(i for share in found for i in share) == list(range(count))
    sizes = [len(share) for share in found]
    assert sizes == [count // n + (rank < count % n) for rank in range(n)]


@given(counts, ranks)
def test_dropping_it_all_ranks_have_as_many_and_none_the_same(count: int, n: int) -> None:
    if count < n:
        with pytest.raises(ValueError, match=f"{count} samples cannot be shared by {n} ranks"):
            ShareSampler(count, 0, n)
        return
    found = shares(count, n, "drop")
    everything = [i for share in found for i in share]
    assert [len(share) for share in found] == [count // n] * n
    assert len(set(everything)) == len(everything) and set(everything) <= set(range(count))


def test_fewer_samples_than_ranks_leave_some_ranks_none_where_the_rest_is_kept() -> None:
    assert [len(share) for share in shares(2, 4, "keep")] == [1, 1, 0, 0]


def test_torch_s_own_sampler_hands_a_sample_to_two_ranks() -> None:
    data = TensorDataset(torch.arange(10))
    torchs = [i for rank in range(4) for i in list[int](DistributedSampler(data, 4, rank))]
    assert len(torchs) == 12 and len(set(torchs)) == 10
    ours = [i for share in shares(10, 4, "drop") for i in share]
    assert len(ours) == len(set(ours)) == 8


@given(st.integers(1, 4), ranks, st.integers(1, 6))
def test_the_ranks_batches_together_are_a_single_process_s(size: int, n: int, batches: int) -> None:
    count = size * n * batches + n // 2
    (whole,) = shares(count, 1, "drop", seed=4)
    found = shares(count, n, "drop", seed=4)
    for k in range(batches):
        together = {i for share in found for i in share[k * size : (k + 1) * size]}
        assert together == set(whole[k * size * n : (k + 1) * size * n])


def test_epochs_draw_other_orders_and_drop_other_samples() -> None:
    first, second = shares(103, 4, "drop"), shares(103, 4, "drop", epoch=1)
    assert first != second and first == shares(103, 4, "drop")
    dropped = [set(range(103)) - {i for share in found for i in share} for found in (first, second)]
    assert dropped[0] != dropped[1] and all(len(rest) == 3 for rest in dropped)


def test_the_order_is_the_same_whatever_a_rank_s_own_generator_holds() -> None:
    torch.manual_seed(1)
    one = list(ShareSampler(20, 0, 2))
    torch.manual_seed(2)
    other = list(ShareSampler(20, 1, 2))
    assert sorted(one + other) == list(range(20))


def test_the_order_does_not_depend_on_where_tensors_are_made() -> None:
    with torch.device("meta"):  # as on a rank whose tensors are made on its GPU: the generator stays on the CPU
        there = list(ShareSampler(20, 0, 2))
    assert there == list(ShareSampler(20, 0, 2))


def test_without_shuffling_ranks_take_turns() -> None:
    assert shares(7, 3, "drop", shuffle=False) == [[0, 3], [1, 4], [2, 5]]
    assert shares(7, 3, "keep", shuffle=False) == [[0, 3, 6], [1, 4], [2, 5]]


def test_a_data_loader_takes_it() -> None:
    data = TensorDataset(torch.arange(10))
    loaders = [DataLoader(data, batch_size=2, sampler=ShareSampler(10, rank, 3, shuffle=False)) for rank in range(3)]
    seen = [[batch[0].tolist() for batch in loader] for loader in loaders]
    assert seen == [[[0, 3], [6]], [[1, 4], [7]], [[2, 5], [8]]]


def test_wrong_requests_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="rank 3 is none of 3 ranks: they go from 0 to 2"):
        ShareSampler(9, 3, 3)
    with pytest.raises(ValueError, match="choose 'drop' or 'keep'"):
        ShareSampler(9, 0, 3, rest="pad")  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [[1, 2, 3], float("nan"), -1, 5.0], ids=str)
def test_a_count_that_is_none_is_refused(count: Any) -> None:
    with pytest.raises(ValueError, match=r"whole number: len\(dataset\)"):
        ShareSampler(count, 0, 2, rest="keep")
