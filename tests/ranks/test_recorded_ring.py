"""The recorded trace that comes with Lockstep is what real ranks do: recorded again, it says the same but for times.

`python -m tests.ranks.test_recorded_ring` writes assets/traces/ring.trace anew.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.cluster.cluster import Cluster
from kit.trace import Trace
from kit.trace.facts import Position

FOLDER = Path(__file__).parents[2] / "assets" / "traces"
RANKS = 4


def ring_all_reduce() -> Callable[..., Any]:
    """The function of assets/traces/ring.py under a file name that is the same on every machine."""
    text = (FOLDER / "ring.py").read_text(encoding="utf-8")
    linecache.cache["ring.py"] = (len(text), None, text.splitlines(keepends=True), "ring.py")
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, "ring.py", "exec"), names)
    return names["ring_all_reduce"]


def recorded(cluster: Cluster) -> Trace:
    """Step to the first exchange, hold rank 3 there for three motions, let it go, step to the end."""
    import torch

    from kit.session import per_rank

    session = cluster.step(ring_all_reduce(), per_rank([torch.full((2 * RANKS,), 10.0**r) for r in range(RANKS)]))
    while "inbox, left" not in line_of(session.trace, session.state, 3):
        session.over(timeout=20)
    for _ in range(3):
        session.over(ranks=[0, 1, 2], timeout=20)
    session.over(ranks=[3], timeout=20)
    while any(state.phase != "finished" for state in session.state):
        session.over(timeout=20)
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


@pytest.fixture(scope="module")
def file() -> Trace:
    return Trace.load(FOLDER / "ring.trace")


def test_the_recorded_ring_is_what_ranks_do(cluster_of: Callable[[int], Cluster], file: Trace) -> None:
    again = recorded(cluster_of(RANKS))
    for ours, theirs in zip(told(again), told(file), strict=True):
        assert ours == theirs


if __name__ == "__main__":
    from kit.cluster.request import checked

    with Cluster(checked(RANKS, "cpu")) as cluster:
        print(recorded(cluster).save(FOLDER / "ring.trace"))
