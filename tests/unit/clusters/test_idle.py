"""When a cluster counts as idle."""

from __future__ import annotations

import pytest

from kit.clusters.idle import Activity, checked_minutes
from kit.protocol.messages import Ended, Forked, HostLost, Move, RankResumed, Run, ToKernel
from tests.unit.clusters.test_coordinator import task


def test_minutes_are_a_number_above_zero_or_never() -> None:
    assert checked_minutes(None) is None and checked_minutes(0) is None
    assert checked_minutes(30) == 30.0 and checked_minutes(0.5) == 0.5
    for wrong in (-1, True, False, "30", float("inf"), float("nan")):
        with pytest.raises(ValueError, match=r"write stop_when_idle\(30\)"):
            checked_minutes(wrong)


def test_silence_is_idle_and_a_word_ends_it() -> None:
    activity = Activity(0.0)
    assert activity.look(60.0, cpu=0.1) == 60.0
    activity.note(70.0, Move(1, 1, (0,), "step", 0))
    assert activity.look(80.0, cpu=0.1) == 10.0
    activity.note(85.0, RankResumed(0, 1))
    activity.note(90.0)
    assert activity.look(100.0, cpu=0.1) == 10.0


def test_ranks_that_compute_are_not_idle_and_heartbeats_are_no_computation() -> None:
    activity = Activity(0.0)
    assert activity.look(10.0, cpu=9.0) == 0.0
    assert activity.look(20.0, cpu=9.5) == 10.0


def test_a_run_at_full_speed_is_not_idle_until_its_last_rank_has_ended() -> None:
    activity = Activity(0.0)
    activity.note(0.0, Run(task(1, "record", 2), (b"", b""), 0))
    assert activity.look(100.0, cpu=0.0) == 0.0
    activity.note(110.0, Ended(1, 0, True))
    assert activity.look(200.0, cpu=0.0) == 0.0
    activity.note(210.0, Ended(1, 1, True))
    assert activity.look(300.0, cpu=0.0) == 90.0


@pytest.mark.parametrize("end", [Forked(1, ()), HostLost()], ids=lambda end: type(end).__name__)
def test_a_run_whose_ranks_are_gone_keeps_nothing_awake(end: ToKernel) -> None:
    activity = Activity(0.0)
    activity.note(0.0, Run(task(1, "record", 2), (b"", b""), 0))
    activity.note(10.0, end)
    assert activity.look(100.0, cpu=0.0) == 90.0


def test_a_session_that_nobody_moves_is_idle() -> None:
    activity = Activity(0.0)
    activity.note(0.0, Run(task(1, "step", 2), (b"", b""), 0))
    assert activity.look(100.0, cpu=0.0) == 100.0
