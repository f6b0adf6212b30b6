"""`kit.memory`: a recorded run in which every rank accounts for what it holds, by kind of memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import kit
from kit.trace.holdings import DECLARED, Holdings, Peak

if TYPE_CHECKING:
    from kit.cluster import Cluster
    from kit.session.record import Recording
    from kit.trace.facts import Trace

Formula = float | Mapping[str, float]  # bytes; or several of them, each with its name


class Accounted:
    """What `kit.memory` returns: `holdings`, `peak(rank)`, `plot()`, and `trace` and `results` as any recording."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.holdings: Holdings = recording.trace.holdings()
        self.about: str = getattr(recording, "about", "")  # of what stands in for ranks: that it is a recording

    @property
    def trace(self) -> Trace:
        return self.recording.trace

    @property
    def results(self) -> list[Any]:
        """What the function returned, by rank."""
        return self.recording.results

    def peak(self, rank: int, kinds: Collection[str] | None = None) -> Peak:
        """When a rank held most, of some kinds of memory together (None: of all)."""
        return self.holdings.peak(rank, kinds)

    def plot(self, formula: Formula | None = None) -> Any:
        """What each rank held, as stacked areas; `formula` (bytes, or name -> bytes) as lines over them."""
        return kit.plot_memory(self, formula)

    def __repr__(self) -> str:
        meta = self.trace.meta
        lines = [f"{meta.function} on {meta.world} ranks, memory by {self.holdings.method}"]
        for rank in range(meta.world):
            peak = self.peak(rank)
            parts = ", ".join(f"{kind} {size:,}" for kind, size in peak.parts)
            where = f" in {peak.within}" if peak.within else ""
            lines.append(f"rank {rank}: {peak.nbytes:,} bytes at most{where} ({parts})")
        return "\n".join(lines)


def account(
    cluster: Cluster,
    call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]],
    kinds: Mapping[str, str | Iterable[str]] | None = None,
    world: int | None = None,
) -> Recording:
    """Records `call` on the first `world` ranks with an account of memory. See `kit.memory`."""
    from kit.session.record import run
    from kit.session.recorded import keeper

    names = checked(kinds or {})
    if (kept := keeper()) is not None:
        return kept.record(cluster, call, lambda: run(cluster, call, world, account=names))
    return run(cluster, call, world, account=names)


def checked(kinds: Mapping[str, str | Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """The variables by kind of memory, as plain data. Raises ValueError for a kind that there is not."""
    unknown = [kind for kind in kinds if kind not in DECLARED]
    if unknown:
        raise ValueError(f"there is no kind of memory {unknown[0]!r}: choose from {', '.join(DECLARED)}")
    return {kind: (names,) if isinstance(names, str) else tuple(names) for kind, names in kinds.items()}
