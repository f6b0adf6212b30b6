"""Stepping and recording functions on the ranks of a cluster, and looking at the records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kit.probe.shipping import PerRank

if TYPE_CHECKING:
    from kit.cluster import Cluster
    from kit.session.record import Recording
    from kit.session.session import Session


def per_rank(values: Sequence[Any]) -> PerRank:
    """Marks an argument that differs by rank: rank r gets `values[r]`. One value for each rank."""
    return PerRank(values)


def step_on(cluster: Cluster, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Session:
    from kit.session.recorded import keeper
    from kit.session.session import Session

    if (kept := keeper()) is not None:
        return kept.step(cluster, (function, args, kwargs))
    return Session(cluster, function, args, kwargs)


def record_on(
    cluster: Cluster,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    world: int | None = None,
) -> Recording:
    from kit.session.record import run
    from kit.session.recorded import keeper

    call = (function, args, kwargs)
    if (kept := keeper()) is not None:
        return kept.record(cluster, call, lambda: run(cluster, call, world))
    return run(cluster, call, world)
