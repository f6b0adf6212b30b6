"""What ranks held in the course of a run: questions about the accounts of memory in a trace."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from kit.trace.facts import MemorySample, Pass, Record
from kit.trace.timeline import the_step

KINDS = {  # as a person reads it -> the field of `MemorySample`; from the bottom of a stack to its top
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer state": "optimizer_state",
    "activations": "activations",
    "communication buffers": "buffers",
    "other": "other",
    "workspaces": "workspaces",
    "allocator": "allocator",
}
MODEL = ("parameters", "gradients", "optimizer state")  # what formulas of data parallelism and ZeRO speak of
LIBRARIES = ("workspaces", "allocator")  # what no tensor holds
DECLARED = tuple(kind for kind in KINDS if kind not in LIBRARIES)  # what code may say of its own tensors
MOST = 2000  # moments of one rank that are kept


@dataclass(frozen=True, slots=True)
class Peak:
    """The moment at which a rank held most. `parts`: (kind, bytes) of all kinds that were not empty then."""

    nbytes: int
    seconds: float  # from the start of the account
    label: str
    within: str  # 'forward', 'backward', 'step', or '' outside of all
    parts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Holdings:
    """Accounts of all ranks, by rank: for each moment that is kept what it held, in order of time."""

    ranks: tuple[tuple[MemorySample, ...], ...]
    passes: tuple[tuple[Pass, ...], ...]
    method: str  # 'live storages', 'cuda allocator'

    @property
    def began(self) -> int:
        """The time at which the first account begins, in nanoseconds of the trace's clock."""
        return min((own[0].time for own in self.ranks if own), default=0)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of memory that any rank held at any time, from the bottom of a stack to its top."""
        return tuple(
            kind for kind, field in KINDS.items() if any(getattr(held, field) for own in self.ranks for held in own)
        )

    def of(self, rank: int) -> tuple[MemorySample, ...]:
        """A rank's account. Raises ValueError for a rank that there is not."""
        if not 0 <= rank < len(self.ranks):
            raise ValueError(f"there is no account of rank {rank}: choose one of 0 to {len(self.ranks) - 1}")
        return self.ranks[rank]

    def step(self, number: int = -1) -> Holdings:
        """One training step alone (negative: counted from the last), what was held when it began included.

        Raises ValueError where the passes of a rank have no such step.
        """
        ranks, passes = [], []
        for rank, own in enumerate(self.ranks):
            start, end = the_step(self.passes[rank], number, rank)
            before = [held for held in own if held.time < start][-1:]
            within = [held for held in own if start <= held.time <= end]
            ranks.append((*(replace(held, time=start) for held in before), *within))
            passes.append(tuple(one for one in self.passes[rank] if start <= one.start and one.end <= end))
        return Holdings(tuple(ranks), tuple(passes), self.method)

    def peak(self, rank: int, kinds: Collection[str] | None = None) -> Peak:
        """When a rank held most, of some kinds together (None: of all). The first such moment."""
        counted = _checked(kinds)
        own = self.of(rank)
        if not own:
            return Peak(0, 0.0, "", "", ())
        held = max(own, key=lambda one: total(one, counted))
        parts = tuple((kind, size) for kind in counted if (size := total(held, (kind,))))
        within = next((p.name for p in self.passes[rank] if p.start <= held.time <= p.end), "")
        return Peak(total(held, counted), (held.time - self.began) / 1e9, held.label, within, parts)

    def most(self, rank: int) -> dict[str, int]:
        """The most bytes of each kind that a rank held, each at its own moment."""
        return {kind: self.peak(rank, (kind,)).nbytes for kind in self.kinds}


def holdings(record: Record) -> Holdings:
    """The accounts in a trace. Raises ValueError where there are none."""
    if not any(rank.account for rank in record.ranks):
        raise ValueError("memory was not accounted for in this run: record it with kit.options(memory=True)")
    methods = {rank.account.method: None for rank in record.ranks if rank.account}
    return Holdings(
        tuple(rank.account.samples if rank.account else () for rank in record.ranks),
        tuple(rank.passes for rank in record.ranks),
        ", ".join(methods),
    )


def total(held: MemorySample, kinds: Iterable[str] = tuple(KINDS)) -> int:
    """Bytes of some kinds together, at one moment."""
    return sum(getattr(held, KINDS[kind]) for kind in kinds)


def thinned(account: Iterable[MemorySample], most: int = MOST) -> tuple[MemorySample, ...]:
    """The moments at which something changed, or a pass began or ended; `most` at most.

    Where there are more, of each run of neighbours that one stays at which most was held, and the first and the last.
    """
    kept: list[MemorySample] = []
    for held in account:
        before = kept[-1] if kept else None
        same = before is not None and replace(held, time=before.time, label=before.label) == before
        if not same or held.label.endswith(("begins", "ends")):
            kept.append(held)
    if len(kept) <= most:
        return tuple(kept)
    each = -(-(len(kept) - 2) // (most - 2))
    inner = [max(kept[i : i + each], key=total) for i in range(1, len(kept) - 1, each)]
    return (kept[0], *inner, kept[-1])


def _checked(kinds: Collection[str] | None) -> tuple[str, ...]:
    chosen = tuple(KINDS) if kinds is None else tuple(kinds)
    unknown = [kind for kind in chosen if kind not in KINDS]
    if unknown:
        raise ValueError(f"there is no kind of memory {unknown[0]!r}: choose from {', '.join(KINDS)}")
    return chosen
