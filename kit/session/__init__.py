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
    from kit.session.session import Session

    return Session(cluster, function, args, kwargs)


def record_on(
    cluster: Cluster,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    world: int | None = None,
    show_output: bool = True,
) -> Recording:
    from kit.session.record import run

    return run(cluster, (function, args, kwargs), world, show_output)
