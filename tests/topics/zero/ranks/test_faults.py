"""What goes wrong while a sharded model trains has a sentence that says who and what, and leaves a working cluster."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kit.run.errors import RankError
from kit.run.live import LiveRunner
from kit.topics.zero.reference import ZeroStage1, ZeroStage2, ZeroStage3
from tests.topics.zero.ranks import faults

STAGES = pytest.mark.parametrize("make", [ZeroStage1, ZeroStage2, ZeroStage3], ids=["1", "2", "3"])


def works(cluster: LiveRunner) -> bool:
    """A sharded step on all ranks, and they agree."""
    results = cluster.record(faults.one_step, ZeroStage3, "").results
    return all(torch.equal(result, results[0]) and bool(result.isfinite().all()) for result in results)


def test_a_rank_that_dies_in_backward_is_named_when_recorded(three: LiveRunner) -> None:
    with pytest.raises(RankError) as caught:
        three.record(faults.one_step, ZeroStage3, "killed")
    told = str(caught.value)
    assert told.startswith("rank 1 died in ") and "killed by SIGKILL" in told
    assert "rank 0" not in told and "rank 2" not in told, "what the others suffered is not the cause"
    assert works(three)


def test_a_rank_that_dies_in_backward_is_named_when_stepped(three: LiveRunner) -> None:
    """The others wait for it, or lose the connection to it: whatever they were at when it happened."""
    state = three.step(faults.one_step, ZeroStage3, "killed").finish()
    assert str(state[1]).startswith("rank 1 died: killed by SIGKILL")
    assert not {state[0].phase, state[2].phase} & {"finished", "dead"}
    assert works(three)


@STAGES
def test_a_nan_is_caught_on_the_rank_that_has_it(three: LiveRunner, make: Any) -> None:
    with pytest.raises(RankError) as caught:
        three.record(faults.one_step, make, "nan", check=True)
    told = str(caught.value)
    assert "rank 1 failed" in told and "rank 1 has a NaN in its own gradient of " in told
    assert "rank 0 has" not in told and "rank 2 has" not in told
    assert works(three)


def test_a_nan_that_nobody_looks_for_reaches_everybody(three: LiveRunner) -> None:
    """Which is why there is something to look with."""
    for result in three.record(faults.one_step, ZeroStage2, "nan").results:
        assert bool(result.isnan().any())


@STAGES
def test_an_unused_parameter_is_named_with_what_to_do(three: LiveRunner, make: Any) -> None:
    with pytest.raises(RankError) as caught:
        three.record(faults.one_step, make, "unused")
    for words in ("has no gradient for 1.spare", "Freeze what is never used", "unused='zeros'"):
        assert words in str(caught.value)
    before = three.record(faults.one_step, make, "unused", unused="zeros").results
    assert all(torch.equal(result, before[0]) for result in before)
    assert works(three)


@STAGES
def test_a_batch_smaller_than_the_number_of_ranks(three: LiveRunner, make: Any) -> None:
    """A rank without samples takes part, with gradients of zero; weighting the loss makes the mean right."""
    right = faults.alone()
    for got in three.record(faults.without_samples, make, "weighted").results:
        torch.testing.assert_close(got, right)  # float32, one step: assert_close's own tolerance
    plain = three.record(faults.without_samples, make, "mean").results
    assert all(torch.equal(got, plain[0]) for got in plain)


def test_a_rank_that_goes_home_because_it_has_no_samples(three: LiveRunner) -> None:
    with pytest.raises(RankError, match="ranks 0, 1 wait in reduce_scatter .*; rank 2 finished without it"):
        three.record(faults.without_samples, ZeroStage2, "goes home")
    assert works(three)


@STAGES
def test_after_a_backward_that_raised_the_next_one_is_right(three: LiveRunner, make: Any) -> None:
    right = three.record(faults.one_step, make, "").results
    for got, wanted in zip(three.record(faults.fails_and_goes_on, make).results, right, strict=True):
        assert torch.equal(got, wanted)
