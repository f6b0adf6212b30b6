"""The recordings that come with Lockstep are what real ranks do: made again, they say the same but for times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kit.run import per_rank
from kit.run.live import LiveRunner
from kit.run.recordings import index
from kit.trace.facts import Position
from kit.trace.trace import Trace

RANKS = 4


def recorded(cluster: LiveRunner) -> Trace:
    """The ring of lab 01 whose last rank is held until nobody goes on without it."""
    import torch

    from kit.topics.collectives.reference import ring_all_reduce

    session = cluster.step(ring_all_reduce, per_rank([torch.full((RANKS,), 10.0**rank) for rank in range(RANKS)]))
    session.finish(ranks=list(range(RANKS - 1)))
    session.finish()
    trace = session.trace
    session.close()
    return trace


def line_of(trace: Trace, position: Position, rank: int) -> str:
    place = position[rank].place
    source = trace.source(place.file) if place else None
    return source.lines[place.line - 1] if source and place else ""


def told(trace: Trace) -> list[Any]:
    """Everything about a trace that does not depend on the machine's speed."""
    states = [
        (p.motion, p.verdict, [(s.phase, s.held, s.operation, s.waiting_for, line_of(trace, p, s.rank)) for s in p])
        for p in trace.positions
    ]
    messages = sorted((m.source, m.destination, m.nbytes, m.match) for m in trace.messages())
    last = [
        [(fact.name, fact.values.tolist()) for fact in rank.stops[-1].frames[-1].tensors if fact.values is not None]
        for rank in trace.ranks
    ]
    return [states, messages, last]


def test_the_recorded_ring_is_what_ranks_do(cluster_of: Callable[[int], LiveRunner]) -> None:
    ours = index.load("01a_collectives")
    (entry,) = [entry for entry in ours.entries if entry.cell == "step-hold-run"]
    (file,) = ours.traces(entry)
    for again, kept in zip(told(recorded(cluster_of(RANKS))), told(file), strict=True):
        assert again == kept
