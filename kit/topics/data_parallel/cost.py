"""How much communication a backward pass hides: gradients leave in buckets while earlier layers are still computed.

Computing and the link are two machines in a row. The backward pass fills buckets one after another, each in a time
in proportion to its bytes; the link sends one bucket at a time, in order, as soon as it is full. What is still on
the link when computing is done is exposed: S. Li and others, PyTorch distributed: experiences on accelerating data
parallel training (2020), section 3.2.3. Communication is taken to cost no computing, which holds for a GPU's copy
engines and a throttled link, not for ranks that share a CPU's cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kit.cost import network

if TYPE_CHECKING:
    from kit.cost.network import Algorithm


@dataclass(frozen=True, slots=True)
class TimedBucket:
    """One bucket: full at `ready`, on the link from `begins` to `ends`; seconds from the start of the backward pass."""

    nbytes: float
    ready: float
    begins: float
    ends: float


@dataclass(frozen=True, slots=True)
class PredictedOverlap:
    """A backward pass and its buckets. Seconds."""

    backward: float
    buckets: tuple[TimedBucket, ...]

    @property
    def communication(self) -> float:
        """Time on the link, all buckets together."""
        return sum(one.ends - one.begins for one in self.buckets)

    @property
    def seconds(self) -> float:
        """Until the last gradient is there."""
        return max([self.backward, *(one.ends for one in self.buckets)])

    @property
    def exposed(self) -> float:
        """What the backward pass does not hide."""
        return self.seconds - self.backward

    @property
    def hidden(self) -> float:
        """What of the communication the backward pass hides."""
        return self.communication - self.exposed

    def __str__(self) -> str:
        return (
            f"{len(self.buckets)} buckets: {self.communication * 1e3:.3g} ms on the link, of which"
            f" {self.exposed * 1e3:.3g} ms come after a backward pass of {self.backward * 1e3:.3g} ms"
        )


def predicted_overlap(
    buckets: Sequence[float],
    *,
    backward: float,
    ranks: int,
    latency: float,
    bandwidth: float,
    algorithm: Algorithm = network.ring_all_reduce,
) -> PredictedOverlap:
    """When each bucket is full and when it has been reduced, for a backward pass of so many seconds.

    buckets: bytes, in the order in which they become ready. One bucket hides nothing; with many the
    end is exposed by one bucket at least; each costs its latency, so there can be too many. ValueError for a negative
    time and for buckets of no bytes.
    """
    if not (backward >= 0 and buckets and all(nbytes > 0 for nbytes in buckets)):
        raise ValueError("give a backward pass of 0 s or more and at least one bucket, each of some bytes")
    whole, done, free = sum(buckets), 0.0, 0.0
    found = []
    for nbytes in buckets:
        done += nbytes
        ready = backward * done / whole
        begins = max(ready, free)
        free = begins + algorithm(ranks, nbytes, latency, bandwidth)
        found.append(TimedBucket(nbytes, ready, begins, free))
    return PredictedOverlap(backward, tuple(found))
