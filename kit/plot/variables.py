"""Which tensors can be looked at, and which one a person most likely wants to see."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kit.plot.cells import overlap, span_of
from kit.plot.moment import last_burst, position_at, scope

if TYPE_CHECKING:
    from kit.trace.facts import TensorFact
    from kit.trace.trace import Trace

_ITEM = re.compile(r"(.*)\[(\d+)\]$", re.DOTALL)
_SINGULAR = ("blocks", "buckets", "chunks", "grads", "parts", "pieces", "shards", "slices", "tiles")
_MANY = 16  # list items shown as columns


@dataclass(frozen=True, slots=True)
class Held:
    """What one rank holds under a chosen name: list items by index, or one tensor under the key None."""

    rank: int
    items: dict[int | None, TensorFact]


def facts(trace: Trace, position: int, rank: int) -> dict[str, TensorFact]:
    """Every tensor a rank can name where it stands, callers included; an inner name hides an outer one."""
    found: dict[str, TensorFact] = {}
    for frame in scope(trace, position, rank):
        for fact in frame.tensors:
            found.setdefault(fact.name, fact)
    return found


def split(name: str) -> tuple[str, int | None]:
    """'chunks[2]' is item 2 of 'chunks'; any other name stands for itself."""
    match = _ITEM.match(name)
    return (match[1], int(match[2])) if match else (name, None)


def item_label(name: str) -> str:
    """'chunks[2]' reads as 'chunk 2'; other names stay as the learner wrote them."""
    base, index = split(name)
    return f"{base[:-1]} {index}" if index is not None and base in _SINGULAR else name


def tensor_names(trace: Trace, position: int) -> list[str]:
    """Names a person can choose between, lists as one name, in the order ranks came to have them."""
    return list(_grouped(trace, position))


def default_name(trace: Trace, position: int) -> str | None:
    """The most telling tensor of those that travelled last, or of all while none has: a list of small chunks, else an
    argument, else a gradient, else what came first.
    """
    groups = _grouped(trace, position)
    arguments = {name: rank for rank, name in enumerate(_arguments(trace))}
    travelled = _travelled(trace, position)

    def interest(name: str) -> tuple[bool, int, int, int]:
        owners = [owner for owner in groups[name] if owner.items]
        kind = _kind(owners, name in arguments, name)
        return name in travelled, len(owners), kind, -arguments.get(name, len(arguments))

    return max(groups, key=interest, default=None)


def holdings(trace: Trace, position: int, name: str) -> list[Held]:
    """What every rank holds under a name; a rank that has no such tensor here holds nothing."""
    world = len(position_at(trace, position).states)
    return _grouped(trace, position).get(name) or [Held(rank, {}) for rank in range(world)]


def _grouped(trace: Trace, position: int) -> dict[str, list[Held]]:
    """Every name with what each rank holds under it. A list hides a tensor of the same name: it says more."""
    world = len(position_at(trace, position).states)
    groups: dict[str, list[Held]] = {}
    for rank in range(world):
        for full, fact in facts(trace, position, rank).items():
            name, key = split(full)
            owners = groups.setdefault(name, [Held(r, {}) for r in range(world)])
            owners[rank].items[key] = fact
    for owners in groups.values():
        for owner in owners:
            if len(owner.items) > 1:
                owner.items.pop(None, None)
    return groups


def _travelled(trace: Trace, position: int) -> set[str]:
    """Names of the memory that each rank's last line with operations in it reads or writes."""
    found = set()
    for rank in range(len(position_at(trace, position).states)):
        moved = [span_of(region) for op in last_burst(trace, position, rank) for region in op.regions]
        for full, fact in facts(trace, position, rank).items():
            if moved and any(overlap(span_of(fact), span) for span in moved):
                found.add(split(full)[0])
    return found


def _kind(owners: list[Held], argument: bool, name: str) -> int:
    fact = next(iter(owners[0].items.values()))
    chunked = any(len(h.items) > 1 for h in owners) and all(
        len(h.items) <= _MANY and all(f.values is not None and f.values.ndim <= 1 for f in h.items.values())
        for h in owners
    )
    if chunked:
        return 4
    if argument:
        return 3 if fact.values is not None else 2
    return 1 if name.endswith(".grad") else 0


def _arguments(trace: Trace) -> list[str]:
    for rank in trace.ranks:
        if rank.stops and rank.stops[0].frames:
            return list(dict.fromkeys(split(fact.name)[0] for fact in rank.stops[0].frames[0].tensors))
    return []
