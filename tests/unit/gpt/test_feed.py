"""The feed: a step's windows are the same for any number of parts, and each of a pass is seen once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kit.gpt.feed import Feed
from kit.gpt.shards import write_shards

ROW = torch.arange(1003)  # tokens that tell where they stood


@pytest.mark.parametrize("parts", [1, 2, 3, 6])
def test_parts_share_the_same_windows_and_none_is_read_twice(parts: int) -> None:
    feed = Feed(ROW, block=8, seed=3)
    given = [feed.micro_batches(24, 12, 12 // 6, part=part, parts=parts) for part in range(parts)]
    assert {len(batches) for batches in given} == {6 // parts}
    begins = [int(row[0]) for batches in given for tokens, _ in batches for row in tokens]
    assert sorted(begins) == sorted(feed.starts(24, 12)) and len(set(begins)) == 12
    for tokens, targets in given[0]:
        assert tokens.shape == targets.shape == (2, 8) and torch.equal(targets, tokens + 1)


def test_a_pass_sees_each_token_once_and_the_next_one_cuts_elsewhere() -> None:
    feed = Feed(ROW, block=8)
    first, second = feed.starts(0, feed.in_a_pass), feed.starts(feed.in_a_pass, feed.in_a_pass)
    for starts in (first, second):
        tokens = [start + i for start in starts for i in range(8)]
        assert len(set(tokens)) == len(tokens) > len(ROW) - 3 * 8
    assert first != second and first != Feed(ROW, 8, seed=1).starts(0, feed.in_a_pass)
    across = feed.starts(feed.in_a_pass - 2, 4)
    assert across == [*first[-2:], *second[:2]], "a step may reach into the next pass"


def test_where_one_stands_is_a_number(tmp_path: Path) -> None:
    """A feed made anew, of a file too, goes on where another stood."""
    shards = write_shards(ROW, tmp_path, size=100)
    (before,) = Feed(ROW, 8).micro_batches(500, 4, 4)
    (after,) = Feed(shards, 8).micro_batches(500, 4, 4)
    assert torch.equal(before[0], after[0]) and torch.equal(before[1], after[1])


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="10 tokens has no window of 8"):
        Feed(ROW[:10], 8)
    assert Feed(ROW[:16], 8).in_a_pass == 1
    with pytest.raises(ValueError, match="12 windows are not a number of micro-batches of 5 for each of 1"):
        Feed(ROW, 8).micro_batches(0, 12, 5)
    with pytest.raises(ValueError, match="at least one token"):
        Feed(ROW, 0)
    with pytest.raises(ValueError, match="rank 2 is not one of 2"):
        Feed(ROW, 8).micro_batches(0, 12, 2, part=2, parts=2)
