"""The traffic of the reference collectives, read off the trace of real ranks, is exactly that of theory."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kit
from kit.topics.collectives import reference as collectives
from kit.topics.collectives.reference import chunk_sizes
from kit.trace.trace import Trace
from tests.topics.collectives import traffic

RANKS = 3
COUNT = 11  # does not divide by 3: chunks of 4, 4 and 3
SIZES = chunk_sizes(COUNT, RANKS)
BYTES = 8

SUMS = [getattr(collectives, name) for name in ("ring_all_reduce", "tree_all_reduce", "halving_doubling_all_reduce")]
SUMS += [collectives.all_reduce_via_root, collectives.ring_reduce_scatter, collectives.reduce_scatter_via_root]
GATHERS = [collectives.ring_all_gather, collectives.all_gather_via_root]
EXCHANGES = [collectives.all_to_all, collectives.all_to_all_in_turn]
BROADCASTS = [collectives.tree_broadcast, collectives.broadcast_from_root]


@pytest.fixture
def cluster(cluster_of: Any) -> Any:
    return cluster_of(RANKS)


def seen(trace: Trace, rank: int) -> traffic.Load:
    """One rank's traffic as the trace has it: messages counted one by one, bytes of the kind 'wire'."""
    messages = trace.messages(rank=rank)
    assert all(message.received is not None for message in messages)
    return traffic.Load(
        sent=sum(message.source == rank for message in messages),
        bytes_sent=trace.bytes_sent(rank=rank).wire,
        received=sum(message.destination == rank for message in messages),
        bytes_received=trace.bytes_received(rank=rank).wire,
    )


def inputs(count: int) -> Any:
    return kit.per_rank([torch.arange(count) * 10**rank for rank in range(RANKS)])


def name_of(fn: Any) -> str:
    return str(fn.__name__)


@pytest.mark.parametrize("fn", SUMS + BROADCASTS, ids=name_of)
@pytest.mark.parametrize("count", [COUNT, 2, 0])
def test_recorded_traffic_of_whole_tensors(cluster: Any, fn: Any, count: int) -> None:
    run = cluster.record(fn, inputs(count))
    theory = getattr(traffic, fn.__name__)
    assert [seen(run.trace, rank) for rank in range(RANKS)] == [theory(RANKS, r, count, BYTES) for r in range(RANKS)]
    assert run.trace.collectives() == ()


@pytest.mark.parametrize("fn", GATHERS, ids=name_of)
def test_recorded_traffic_of_shares(cluster: Any, fn: Any) -> None:
    shares = kit.per_rank(list(torch.arange(COUNT).split(SIZES)))
    run = cluster.record(fn, shares, None, SIZES)
    theory = getattr(traffic, fn.__name__)
    assert [seen(run.trace, rank) for rank in range(RANKS)] == [theory(RANKS, r, SIZES, BYTES) for r in range(RANKS)]
    assert all(torch.equal(result, torch.arange(COUNT)) for result in run.results)


@pytest.mark.parametrize("fn", EXCHANGES, ids=name_of)
def test_recorded_traffic_of_everybody_to_everybody(cluster: Any, fn: Any) -> None:
    run = cluster.record(fn, inputs(COUNT))
    theory = [traffic.all_to_all(RANKS, r, SIZES, [SIZES[r]] * RANKS, BYTES) for r in range(RANKS)]
    assert [seen(run.trace, rank) for rank in range(RANKS)] == theory


@pytest.mark.parametrize("fn", SUMS[:3], ids=name_of)
def test_stepped_to_its_end_it_sends_the_same(cluster: Any, fn: Any) -> None:
    session = cluster.step(fn, inputs(COUNT))
    session.step()
    session.finish()
    theory = getattr(traffic, fn.__name__)
    assert [seen(session.trace, rank) for rank in range(RANKS)] == [
        theory(RANKS, r, COUNT, BYTES) for r in range(RANKS)
    ]
    assert all(torch.equal(result, torch.arange(COUNT) * 111) for result in session.results)


def test_a_session_exports_what_it_ran(cluster: Any, tmp_path: Any) -> None:
    session = cluster.step(collectives.ring_all_reduce, inputs(COUNT))
    session.finish()
    text = session.export(tmp_path / "ring.py").read_text()
    assert "def ring_all_reduce(" in text and "kit" not in text.replace("without kit", "")
    compile(text, "ring.py", "exec")
