"""What goes wrong in the middle of a schedule has a sentence that says who and what, and leaves a working cluster."""

from __future__ import annotations

import pytest

from kit.run.errors import RankError
from kit.run.live import LiveRunner
from tests.topics.pipeline.ranks import faults


def works(cluster: LiveRunner) -> bool:
    first, middle, last = cluster.record(faults.one_step, "").results
    return first == middle == [] and len(last) == 4


def test_a_stage_that_dies_in_mid_schedule_is_named(three: LiveRunner) -> None:
    with pytest.raises(RankError) as caught:
        three.record(faults.one_step, "dies")
    told = str(caught.value)
    assert told.startswith("rank 1 died in ") and "killed by SIGKILL" in told
    assert works(three)


def test_micro_batches_that_are_not_equal_are_refused_in_words(three: LiveRunner) -> None:
    with pytest.raises(RankError) as caught:
        three.record(faults.one_step, "rest")
    told = str(caught.value)
    assert "micro-batch 3 is (2, 4) where stage 1 waits for (3, 4): all micro-batches have the same size" in told
    assert works(three)
