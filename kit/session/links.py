"""`kit.link`: slower links between ranks, so that overlap, buckets and nodes can be seen on one machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from kit.cost.simulate import USUAL
from kit.probe.links.throttle import Links
from kit.session.conductor import conductor_of

if TYPE_CHECKING:
    from kit.cluster import Cluster


class LinkSetting:
    """Slow links of a cluster: in force from the next run on, until `off()`, the end of `with`, or the next setting."""

    def __init__(self, cluster: Cluster, links: Links | None) -> None:
        self._cluster = cluster
        self._before = conductor_of(cluster).links
        self.links = links
        conductor_of(cluster).links = links

    def off(self) -> None:
        """Links as fast as they are."""
        conductor_of(self._cluster).links = None

    def __enter__(self) -> LinkSetting:
        return self

    def __exit__(self, *problem: object) -> None:
        conductor_of(self._cluster).links = self._before

    def __repr__(self) -> str:
        return self.links.in_words() if self.links else "links as fast as they are"


def set_links(
    cluster: Cluster,
    latency: float = 0.0,
    bandwidth: float = math.inf,
    between: Sequence[Sequence[int]] | None = None,
) -> LinkSetting:
    """See `kit.link`."""
    if not isinstance(latency, int | float) or not 0 <= latency < math.inf:
        raise ValueError(f"latency is a time in seconds, 0 or more, not {latency!r}: kit.link(latency=1e-3)")
    if not isinstance(bandwidth, int | float) or not bandwidth > 0:
        raise ValueError(f"bandwidth is in bytes per second, more than 0, not {bandwidth!r}: kit.link(bandwidth=1e8)")
    if latency == 0 and bandwidth == math.inf:
        return LinkSetting(cluster, None)
    pairs = None if between is None else _pairs(between, cluster.size)
    return LinkSetting(cluster, Links(float(latency), float(bandwidth), pairs, _table(cluster.size)))


def _pairs(nodes: Sequence[Sequence[int]], size: int) -> frozenset[tuple[int, int]]:
    members = [rank for node in nodes for rank in node]
    if len(nodes) < 2 or len(set(members)) != len(members) or not set(members) <= set(range(size)):
        raise ValueError(
            f"between takes two or more groups of the ranks 0 to {size - 1}, each rank in one of them: "
            "kit.link(latency=1e-3, between=[[0, 1], [2, 3]]) slows what goes from one group to another"
        )
    return frozenset((min(a, b), max(a, b)) for one, other in combinations(nodes, 2) for a in one for b in other)


def _table(size: int) -> dict[str, dict[int, tuple[float, float]]]:
    """Rounds and volume of each built-in collective: its formula at latency 1 alone, and at 1 s per byte alone."""
    return {
        name: {n: (formula(n, 1.0, 1.0, math.inf), formula(n, 1.0, 0.0, 1.0)) for n in range(1, size + 1)}
        for name, formula in USUAL.items()
    }
