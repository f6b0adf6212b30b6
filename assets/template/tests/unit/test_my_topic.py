"""The formula and the figure."""

from __future__ import annotations

import pytest

from kit.topics.my_topic.cost import bytes_sent
from kit.topics.my_topic.figures import payload_by_rank, payload_svg
from kit.trace.facts import Meta, RankTrace
from kit.trace.trace import Trace


def test_a_ring_of_two_sends_everything_once() -> None:
    assert bytes_sent(100, 2) == 100
    assert bytes_sent(100, 4) == pytest.approx(150)


def test_a_picture_has_a_row_for_each_rank_and_says_what_it_shows() -> None:
    ranks = tuple(RankTrace(rank, (), (), (), ()) for rank in range(3))
    trace = Trace(Meta("f", "record", 3, "gloo", ("cpu",) * 3), ranks, (), ())
    assert payload_by_rank(trace) == [0, 0, 0]
    assert 'aria-label="rank 0: 0 bytes, rank 1: 0 bytes, rank 2: 0 bytes"' in payload_svg(trace)
