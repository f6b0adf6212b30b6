"""Whether the pieces that ranks exchange fit: lists of tensors, whole buffers, uneven splits.

Sizes are counted in elements; the dtype is compared elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kit.trace.facts import Operation, Region
from kit.trace.sentences import at_line, canonical, listed, size


def own_misfit(e: Operation) -> str | None:
    """A sentence if one rank's own list or whole buffer cannot hold a piece for each rank of the group, else None."""
    name = canonical(e.name)
    if name not in ("gather", "scatter", "all_gather", "reduce_scatter"):
        return None
    gathers = name.endswith("gather")
    parts, wholes = (_inputs(e), _outputs(e)) if gathers else (_outputs(e), _inputs(e))
    if not parts or not wholes:  # a rank that is not the root
        return None
    if name in ("gather", "scatter"):
        return _own_list(e, parts[0], wholes)
    if len(parts) == 1 and len(wholes) == len(e.ranks):  # a list: its pieces are compared with the other ranks'
        return None
    if _count(wholes) == len(e.ranks) * _count(parts):
        return None
    if len(parts) == 1 and len(wholes) > 1:
        return _own_list(e, parts[0], wholes)
    return (
        f"rank {e.rank} calls {name} between {_words(parts)} and {_words(wholes)}{at_line(e.place)}: the whole must "
        f"hold the part {len(e.ranks)} times, once per rank."
    )


def misfit(entries: Sequence[Operation]) -> str | None:
    """A sentence if what one rank gives another is not what that one makes room for, else None.

    Where the pieces are not known (all_to_all on whole tensors, whose split sizes are not recorded) the totals of all
    ranks are compared once everybody is there. Of a rank that died in it only one tensor is known: it is left out.
    """
    name = canonical(entries[0].name)
    if name not in ("all_gather", "reduce_scatter", "all_to_all"):
        return None
    entries = [e for e in entries if _inputs(e) and _outputs(e)]
    if not entries:
        return None
    given, room = [_given(e) for e in entries], [_room(e) for e in entries]
    if name == "all_to_all" and (None in given or None in room):
        return _totals(entries)
    for giver, gives in zip(entries, given, strict=True):
        for taker, takes in zip(entries, room, strict=True):
            if gives is None or takes is None or giver.ranks != taker.ranks:
                continue
            there, here = gives[giver.ranks.index(taker.rank)], takes[taker.ranks.index(giver.rank)]
            if there != here:
                return _unequal(giver, taker, there, here)
    return None


def _given(e: Operation) -> list[int] | None:
    """Elements that a rank gives to each member of the group."""
    n, ins = len(e.ranks), _inputs(e)
    if canonical(e.name) == "all_gather":
        return [_count(ins)] * n
    return _per_rank(ins, n, known=canonical(e.name) != "all_to_all")


def _room(e: Operation) -> list[int] | None:
    """Elements that a rank makes room for from each member of the group."""
    n, outs = len(e.ranks), _outputs(e)
    if canonical(e.name) == "reduce_scatter":
        return [_count(outs)] * n
    return _per_rank(outs, n, known=canonical(e.name) != "all_to_all")


def _per_rank(regions: Sequence[Region], n: int, known: bool) -> list[int] | None:
    if len(regions) == n:
        return [prod(r.shape) for r in regions]
    return [_count(regions) // n] * n if known else None


def _own_list(e: Operation, part: Region, wholes: Sequence[Region]) -> str | None:
    n, name = len(e.ranks), canonical(e.name)
    verb = "gathers into" if name.endswith("gather") else "scatters"
    if len(wholes) != n:
        length = "1 tensor" if len(wholes) == 1 else f"{len(wholes)} tensors"
        return (
            f"rank {e.rank} {verb} a list of {length} in {name}{at_line(e.place)}: it needs one for each of {n} ranks."
        )
    odd = next((r for r in wholes if (prod(r.shape), r.dtype) != (prod(part.shape), part.dtype)), None)
    if odd is None:
        return None
    return (
        f"rank {e.rank} {verb} {size(odd.shape, odd.dtype)} beside {size(part.shape, part.dtype)} in "
        f"{name}{at_line(e.place)}: every tensor of the list must be like the single one."
    )


def _totals(entries: Sequence[Operation]) -> str | None:
    given, room = sum(_count(_inputs(e)) for e in entries), sum(_count(_outputs(e)) for e in entries)
    if len(entries) < len(entries[0].ranks) or given == room:
        return None
    return (
        f"{listed(e.rank for e in entries)} give {given} elements in all_to_all{at_line(entries[0].place)} and make "
        f"room for {room}: what all ranks give and what they take must be equal."
    )


def _unequal(giver: Operation, taker: Operation, given: int, room: int) -> str:
    name = f"{canonical(giver.name)}{at_line(giver.place)}"
    if giver.rank == taker.rank:
        return (
            f"rank {giver.rank} gives itself {given} elements in {name} and makes room for {room}: both must be equal."
        )
    return (
        f"rank {giver.rank} gives rank {taker.rank} {given} elements in {name}, "
        f"rank {taker.rank} makes room for {room}{at_line(taker.place)}: both must be equal."
    )


def _inputs(e: Operation) -> list[Region]:
    return [r for r in e.regions if r.role != "out"]


def _outputs(e: Operation) -> list[Region]:
    return [r for r in e.regions if r.role != "in"]


def _count(regions: Sequence[Region]) -> int:
    return sum(prod(r.shape) for r in regions)


def _words(regions: Sequence[Region]) -> str:
    first = size(regions[0].shape, regions[0].dtype)
    return first if len(regions) == 1 else f"{len(regions)} tensors"
