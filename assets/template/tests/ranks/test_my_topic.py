"""The reference on real ranks, beside a serial run."""

from __future__ import annotations

import torch

import kit
from kit.topics.my_topic.figures import payload_by_rank
from kit.topics.my_topic.reference import mean_over_ranks


def test_the_mean_is_that_of_a_serial_run() -> None:
    own = [torch.arange(5.0) * (rank + 1) for rank in range(3)]  # n x (C,)
    with kit.cluster(ranks=3, device="cpu") as cluster:
        run = cluster.record(mean_over_ranks, kit.per_rank(own))
    right = torch.stack(own).mean(0)  # (C,)
    assert not torch.equal(own[0], right)
    assert all(torch.equal(result, right) for result in run.results)
    assert payload_by_rank(run.trace) == [20, 20, 20]
