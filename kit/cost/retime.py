"""A trace as theory would have it: the same operations, re-timed.

Computing takes what the trace says (or a factor of it, or nothing), each message takes a + m b, each built-in
collective the time of its usual algorithm; a rank that waits goes on when its operation has ended. The result is a
trace like any other, of mode 'predicted', so every view and question works on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from kit.cost import network
from kit.cost.network import USUAL, Algorithm
from kit.trace.clocks import Cost, Run, retimed
from kit.trace.facts import Operation, RankTrace
from kit.trace.text import canonical, is_message
from kit.trace.trace import Trace
from kit.trace.traffic import message_bytes, whole_buffer


def predicted_trace(
    trace: Trace,
    *,
    latency: float,
    bandwidth: float,
    compute: float = 1.0,
    algorithms: Mapping[str, Algorithm] | None = None,
) -> Trace:
    """The same run on links of a given latency (s) and bandwidth (bytes/s), by the alpha-beta model.

    compute: factor on the time that ranks computed between operations; 0 leaves communication alone. algorithms: other
    ones than `USUAL`, by operation, e.g. {'all_reduce': network.tree_all_reduce}. A rank sends one message and receives
    one at a time, and is in one collective at a time. Operations that never met their partners stay open.

    Returns a trace of mode 'predicted' with the same operations (times from 0, in nanoseconds), without stops and
    positions. The work grows linearly with the number of operations. Raises ValueError for a negative latency or
    factor, a bandwidth that is not positive, and an operation that no algorithm is known for.
    """
    if compute < 0:
        raise ValueError(f"compute is a factor on measured times, 0 or more, not {compute}")
    network.message(0, latency, bandwidth)  # checks both before any work
    cost = partial(_nanoseconds, {**USUAL, **(algorithms or {})}, latency, bandwidth)
    return _as_trace(trace, retimed(trace, _remembered(cost), compute, one_port=True), latency, bandwidth, compute)


def _nanoseconds(algorithms: Mapping[str, Algorithm], latency: float, bandwidth: float, op: Operation) -> int:
    name = canonical(op.name)
    if is_message(name):
        return round(1e9 * network.message(message_bytes(op), latency, bandwidth))
    if name not in algorithms:
        raise ValueError(f"no cost is known for {name!r}: name one in algorithms={{{name!r}: ...}}")
    return round(1e9 * algorithms[name](len(op.ranks), whole_buffer(op), latency, bandwidth))


def _remembered(cost: Cost) -> Cost:
    """The parts of one collective take one time: what the first of them says (uneven parts: of the first rank)."""
    known: dict[str, int] = {}

    def remembered(op: Operation) -> int:
        if not op.match or op.match not in known:
            known[op.match] = cost(op)
        return known[op.match]

    return remembered


def _as_trace(trace: Trace, runs: list[Run], latency: float, bandwidth: float, compute: float) -> Trace:
    note = f"predicted: latency {latency * 1e6:g} µs, bandwidth {bandwidth / 1e9:g} GB/s, computing x {compute:g}"
    meta = replace(trace.meta, mode="predicted", notes=(*trace.meta.notes, note))
    ranks = tuple(RankTrace(run.rank, operations=tuple(run.operations), active=tuple(run.active)) for run in runs)
    return Trace(meta, ranks, sources=trace.sources)
