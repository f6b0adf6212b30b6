"""What labs 03a and 03b say to a wrong guess holds for whatever the run has shown."""

from __future__ import annotations

from kit.topics.data_parallel.questions import ANSWERS


def test_a_sum_in_place_of_a_mean_may_leave_no_loss_at_all():
    """Four ranks end at nan, two at another number."""
    told = ANSWERS["undivided"].why(ranks=4)
    assert "4 times as long: another loss, or none at all (nan)" in told


def test_hooks_have_their_reason_under_either_name():
    for hooks in ("hooks", "your hooks"):
        why = ANSWERS["bucket-size"].why(hooks=hooks, between=["up to 52 kB"])
        assert why.keys() == {hooks, "one bucket for all", "up to 52 kB"}
        assert "pay the latency every time" in why[hooks]
