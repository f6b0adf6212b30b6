"""Simulated worlds beside real ranks: what the reference collectives really send, re-timed, is what is simulated."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kit.cost import predicted_trace
from kit.cost.worlds import simulated
from kit.run.live import LiveRunner
from kit.topics.collectives import reference as collectives
from kit.trace.trace import Trace

LINK = {"latency": 1e-5, "bandwidth": 1e9}
COUNT = 12_000  # elements: a chunk on 2 or 3 ranks is a whole number of microseconds long


def seen(trace: Trace) -> list[list[tuple[str, int | None, int, int | None, int | None]]]:
    """Each rank's messages in order, with their times."""
    return [[(op.name, op.peer, op.payload, op.began, op.ended) for op in rank.operations] for rank in trace.ranks]


@pytest.mark.parametrize(
    "algorithm",
    [
        collectives.ring_all_reduce,
        collectives.ring_reduce_scatter,
        collectives.tree_broadcast,
        collectives.tree_all_reduce,
        collectives.halving_doubling_all_reduce,
        collectives.all_to_all,
        collectives.broadcast_from_root,
        collectives.all_reduce_via_root,
    ],
)
def test_the_real_run_re_timed_is_the_simulated_one(ranks: LiveRunner, algorithm: Callable[..., torch.Tensor]) -> None:
    real = predicted_trace(ranks.record(algorithm, torch.ones(COUNT)).trace, compute=0, **LINK)
    made = simulated(algorithm.__name__, ranks.size, 4 * COUNT, **LINK).trace()
    assert seen(made) == seen(real)


def test_gathering_too(ranks: LiveRunner) -> None:
    piece = torch.ones(COUNT // ranks.size)
    real = predicted_trace(ranks.record(collectives.ring_all_gather, piece).trace, compute=0, **LINK)
    gathered = 4 * len(piece) * ranks.size
    assert seen(simulated("ring_all_gather", ranks.size, gathered, **LINK).trace()) == seen(real)
