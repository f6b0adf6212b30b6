"""A trace as it was at an earlier position: what a replay shows, and what every question is then asked of."""

from __future__ import annotations

from dataclasses import replace

from kit.trace.facts import Account, Operation, Position, RankTrace, Trace


def until(trace: Trace, position: int) -> Trace:
    """The trace as far as a position (negative: counted from the end): later stops, operations and times are gone.

    Raises ValueError for a position that was not recorded.
    """
    if not -len(trace.positions) <= position < len(trace.positions):
        raise ValueError(
            f"there is no position {position}: this trace has {len(trace.positions)}, counted from 0"
            if trace.positions
            else "this trace has no positions: only a stepped run has them"
        )
    index = position % len(trace.positions)
    if index == len(trace.positions) - 1:
        return trace
    reached = trace.positions[index]
    moment = _moment(trace, reached)
    ranks = tuple(_rank_until(rank, reached, moment) for rank in trace.ranks)
    return replace(trace, ranks=ranks, positions=trace.positions[: index + 1])


def _moment(trace: Trace, position: Position) -> int:
    """When the position was seen. All ranks are seen at once, so the latest time that any state knows will do."""
    known = [moment for state in position.states for moment in (state.now, state.since) if moment is not None]
    known += [trace.ranks[state.rank].stops[state.stop].time for state in position.states if state.stop >= 0]
    return max(known, default=0)


def _rank_until(rank: RankTrace, position: Position, moment: int) -> RankTrace:
    state = position.states[rank.rank]
    stops = rank.stops[: state.stop + 1]
    return RankTrace(
        rank=rank.rank,
        stops=stops,
        operations=tuple(_operation_until(op, moment) for op in rank.operations[: state.operations]),
        active=tuple((start, min(end, moment)) for start, end in rank.active if start < moment),
        output=tuple(output for stop in stops for output in stop.output),
        passes=tuple(one for one in rank.passes if one.end <= moment),
        account=rank.account and _account_until(rank.account, moment),
    )


def _account_until(account: Account, moment: int) -> Account:
    return replace(account, holdings=tuple(held for held in account.holdings if held.time <= moment))


def _operation_until(op: Operation, moment: int) -> Operation:
    if op.ended is not None and op.ended <= moment and all(end <= moment for _, end in op.waits):
        return op
    return replace(
        op,
        began=op.began if op.began is not None and op.began <= moment else None,
        ended=op.ended if op.ended is not None and op.ended <= moment else None,
        waits=tuple((start, end) for start, end in op.waits if end <= moment),
        error=op.error if op.ended is None or op.ended <= moment else None,
    )
