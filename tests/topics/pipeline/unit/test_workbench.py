"""The schedule bench as lab 06a hands it out."""

from __future__ import annotations

import pytest

from kit.topics.pipeline import bench


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_the_target_of_the_lab_is_there_to_be_reached(ranks: int) -> None:
    desk = bench("1F1B", ranks=ranks, micro_batches=2 * ranks, idle=0.15, held=ranks)
    assert not desk.reached
    desk.load("ZBH1")
    assert desk.reached
