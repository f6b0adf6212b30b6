"""`kit.link`: slower links between ranks, so that overlap, buckets and nodes can be seen on one machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Protocol

from kit.cost.network import USUAL
from kit.protocol.links import Links


class Linked(Protocol):
    """Ranks whose links can be slowed."""

    links: SlowLinks | None

    @property
    def size(self) -> int: ...


@dataclass(frozen=True, repr=False)
class SlowLinks:
    """Links of a given speed: in force inside `with`, or from `on()` to `off()`, or for the runs of some options.

    latency: seconds a message takes beside its bytes. bandwidth: bytes per second. between: groups of ranks ('nodes'):
    only what goes from one group to another is slowed; None: every link is. ranks: whose links, asked each time.
    """

    latency: float
    bandwidth: float
    between: Sequence[Sequence[int]] | None
    ranks: Callable[[], Linked] = field(compare=False)
    _before: list[tuple[Linked, SlowLinks | None]] = field(default_factory=list, init=False, compare=False)

    def __post_init__(self) -> None:
        latency, bandwidth = self.latency, self.bandwidth
        if not isinstance(latency, int | float) or not 0 <= latency < math.inf:
            raise ValueError(f"latency is a time in seconds, 0 or more, not {latency!r}: kit.link(latency=1e-3)")
        if not isinstance(bandwidth, int | float) or not bandwidth > 0:
            raise ValueError(
                f"bandwidth is in bytes per second, more than 0, not {bandwidth!r}: kit.link(bandwidth=1e8)"
            )

    def of(self, ranks: Linked) -> SlowLinks:
        """The same for these ranks. ValueError for groups of others."""
        self.throttle(ranks.size)
        return replace(self, ranks=lambda: ranks)

    def on(self) -> SlowLinks:
        """Slows the links from the next run on. ValueError for groups of other ranks than there are."""
        self.ranks().links = self
        return self

    def off(self) -> None:
        """Links as fast as they are, from the next run on."""
        self.ranks().links = None

    def __enter__(self) -> SlowLinks:
        ranks = self.ranks()
        before, ranks.links = ranks.links, self
        self._before.append((ranks, before))
        return self

    def __exit__(self, *problem: object) -> None:
        ranks, ranks_before = self._before.pop()
        ranks.links = ranks_before

    def __repr__(self) -> str:
        throttle = self.throttle(1 + max((rank for node in self.between or () for rank in node), default=1))
        return throttle.in_words() if throttle else "links as fast as they are"

    def throttle(self, size: int) -> Links | None:
        """What `size` ranks are told; None where nothing is slower. ValueError for groups of other ranks."""
        if self.latency == 0 and self.bandwidth == math.inf:
            return None
        if self.between is not None:
            _check(self.between, size)
        return Links(float(self.latency), float(self.bandwidth), self.pairs, _table(size))

    @property
    def pairs(self) -> frozenset[tuple[int, int]] | None:
        """Of ranks between which links are slower, the lower one first; None: all."""
        if self.between is None:
            return None
        nodes = combinations(self.between, 2)
        return frozenset((min(a, b), max(a, b)) for one, other in nodes for a in one for b in other)


def _check(nodes: Sequence[Sequence[int]], size: int) -> None:
    members = [rank for node in nodes for rank in node]
    if len(nodes) < 2 or len(set(members)) != len(members) or not set(members) <= set(range(size)):
        raise ValueError(
            f"between takes two or more groups of the ranks 0 to {size - 1}, each rank in one of them: "
            "kit.link(latency=1e-3, between=[[0, 1], [2, 3]]) slows what goes from one group to another"
        )


def _table(size: int) -> dict[str, dict[int, tuple[float, float]]]:
    """Rounds and volume of each built-in collective: its formula at latency 1 alone, and at 1 s per byte alone."""
    return {
        name: {n: (formula(n, 1.0, 1.0, math.inf), formula(n, 1.0, 0.0, 1.0)) for n in range(1, size + 1)}
        for name, formula in USUAL.items()
    }
