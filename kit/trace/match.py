"""What belongs together, and whether it fits: the parts that ranks play in one communication.

The coordinator asks before data moves (raw gloo would abort or compute nonsense); `mismatches` asks afterwards about a
recorded run. Both use `disagreement`, so both say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import prod

from kit.trace.facts import ENDED, Message, Operation, RankState, Record, Region
from kit.trace.text import ANY, canonical, counted, is_message, listed, size
from kit.trace.traffic import message_bytes


def is_complete(entries: Sequence[Operation]) -> bool:
    """Whether every participant has posted its part: the two of a message, the members of a collective's group."""
    return len(entries) >= (2 if is_message(entries[0].name) else len(entries[0].ranks))


def arrivals(record: Record) -> dict[str, int]:
    """When the last participant had come to each communication that is complete, by match, in nanoseconds."""
    return {match: max(op.issued for op in parts) for match, parts in record.by_match.items() if is_complete(parts)}


def missing_ranks(entries: Sequence[Operation]) -> tuple[int, ...]:
    """The participants that have not posted their part; for a receive from any source that is any other member."""
    if is_complete(entries):
        return ()
    first = entries[0]
    if is_message(first.name) and first.peer is not None and first.peer != ANY:
        return (first.peer,)
    present = {op.rank for op in entries}
    return tuple(rank for rank in first.ranks if rank not in present)


def moved(entries: Sequence[Operation]) -> bool:
    """Whether data moved: all parts are there, or the record says that it began."""
    return any(op.began is not None or op.ended is not None for op in entries) or (
        is_complete(entries) and not any(op.error for op in entries)
    )


def send_and_receive(entries: Sequence[Operation]) -> tuple[Operation | None, Operation | None]:
    """The two parts of a message; None for one that is missing."""
    first = {canonical(op.name): op for op in reversed(entries)}
    return first.get("send"), first.get("recv")


def messages(record: Record) -> tuple[Message, ...]:
    """Every send, in order of issue, with the receive that met it."""
    found = []
    for entries in record.by_match.values():
        send, receive = send_and_receive(entries)
        if send is not None and send.peer is not None:
            size = message_bytes(send)
            found.append(Message(send.rank, send.peer, send.tag or 0, size, send.match, send, receive))
    return tuple(sorted(found, key=lambda message: (message.sent.issued, message.source, message.sent.index)))


# Where every rank must hand in, or take, tensors of one shape. Lists and uneven pieces are compared in `pieces`.
EXCHANGES = ("all_gather", "reduce_scatter", "all_to_all")
ALIKE = {"all_reduce": "in", "reduce": "in", "broadcast": "any", "gather": "in", "scatter": "out"}


def disagreement(entries: Sequence[Operation]) -> str | None:
    """One sentence about the first difference between operations that share one match, or None if they agree.

    entries: the parts of one communication that are known so far, at most one per rank, all participants or only
    some. Compared, in this order: the operation, its root or source, the reduction, the dtype, the shapes. Shapes must
    be equal where all ranks hand in the same tensor (all_reduce, reduce, broadcast, gather, scatter); where ranks
    exchange pieces (all_gather, reduce_scatter, all_to_all) what one gives must be what the other makes room for, so
    uneven pieces are legal. For a send and its receive the dtype and the number of elements must be equal. What is not
    known of a rank, because it died and only its black box tells, is not compared.
    """
    if not entries:
        return None
    first = entries[0]
    if is_message(first.name) and all(is_message(e.name) for e in entries):
        return _message(entries)
    signature = _signature(first)
    if all(_signature(other) == signature for other in entries[1:]):
        return own_misfit(first) or misfit(entries)
    root = "destination" if canonical(first.name) in ("reduce", "gather") else "source"
    same_call = "every rank of a group must call the same operation in the same order"
    return (
        _differ(entries, lambda e: canonical(e.name), call_words, same_call)
        or _differ(entries, lambda e: e.root, lambda e: e.words, f"every rank must name the same {root}")
        or _differ(entries, lambda e: e.reduce, _reduction_words, "every rank must name the same reduction")
        or _differ(entries, _dtype, call_words, "the dtypes must be equal on every rank")
        or _differ(entries, _alike, call_words, "the shapes must be equal on every rank")
        or next((text for text in map(own_misfit, entries) if text), None)
        or misfit(entries)
    )


def mismatches(record: Record) -> tuple[str, ...]:
    """What the participants of a run's operations disagreed on, in order of issue, one sentence each; empty if nothing.

    Names differences as `disagreement` does, and participants that never came. Only the first is named per group, and
    per pair of ranks for messages: what follows is its consequence. Ranks that may still come (a session that is being
    stepped) are not called missing.
    """
    found: list[str] = []
    blamed: set[Hashable] = set()
    for entries in record.by_match.values():
        thread = (entries[0].group, _pair(entries[0]))
        if thread in blamed:
            continue
        text = disagreement(entries)
        if text is None and not is_complete(entries) and not any(e.error for e in entries):  # waited for in vain
            text = _never_came(record, entries)
        if text is not None:
            blamed.add(thread)
            found.append(text)
    return tuple(found)


def first_clash(record: Record) -> str | None:
    """What participants disagreed on first, in order of issue; None where they agreed, or merely never came."""
    return next(filter(None, map(disagreement, record.by_match.values())), None)


def call_words(operation: Operation) -> str:
    """'all_reduce of 4 x float32'; the bare name where there is no tensor."""
    region = _main(operation)
    name = canonical(operation.name)
    return f"{name} of {size(region.shape, region.dtype)}" if region else name


def _signature(e: Operation) -> tuple[Hashable, ...]:
    return canonical(e.name), e.root, e.reduce, tuple((r.role, r.shape, r.dtype) for r in e.regions)


def _main(e: Operation) -> Region | None:
    """The region that stands for an operation in a sentence: what the rank gives, or else what it is given."""
    wanted = "in" if canonical(e.name) in ("recv", "scatter") else "out"  # the role to pass over
    return next((r for r in e.regions if r.role != wanted), e.regions[0] if e.regions else None)


def _dtype(e: Operation) -> Hashable:
    region = _main(e)
    return region.dtype if region else None


def _alike(e: Operation) -> Hashable:
    side = ALIKE.get(canonical(e.name))
    if side is None:
        return None
    passed_over = {"in": "out", "out": "in", "any": None}[side]
    return tuple(r.shape for r in e.regions if r.role != passed_over) or None


def _differ(
    entries: Sequence[Operation],
    key: Callable[[Operation], Hashable],
    words: Callable[[Operation], str],
    rule: str,
) -> str | None:
    entries = [entry for entry in entries if key(entry) is not None]
    if len({key(entry) for entry in entries}) < 2:
        return None
    several_files = len({e.place.file for e in entries if e.place}) > 1
    callers: dict[str, list[int]] = {}
    for e in entries:
        line = f" ({e.place.words(several_files)})" if e.place else ""
        callers.setdefault(f"{words(e)}{line}", []).append(e.rank)
    who = ", ".join(
        f"{listed(ranks)} {'calls' if len(ranks) == 1 else 'call'} {text}"
        for text, ranks in sorted(callers.items(), key=lambda item: min(item[1]))
    )
    return f"{who}: {rule}."


def _reduction_words(e: Operation) -> str:
    return f"{canonical(e.name)} with {e.reduce}"


def _message(entries: Sequence[Operation]) -> str | None:
    """A send against its receive. The shape may differ: a message has elements, not dimensions."""
    send, receive = send_and_receive(entries)
    if send is None or receive is None or not send.regions or not receive.regions:
        return None
    out, into = send.regions[0], receive.regions[0]
    if out.dtype != into.dtype:
        what = "dtype"
    elif prod(out.shape) != prod(into.shape):
        what = "size"
    else:
        return None
    return (
        f"rank {send.rank} sends {size(out.shape, out.dtype)} to rank {receive.rank}{send.at_line}, "
        f"rank {receive.rank} receives {size(into.shape, into.dtype)} from rank {send.rank}{receive.at_line}: "
        f"a message and its buffer must have the same {what}."
    )


def _pair(e: Operation) -> Hashable:
    """Messages between two ranks stand apart from the collectives of a group."""
    return frozenset((e.rank, e.peer)) if is_message(e.name) else None


def _never_came(record: Record, entries: Sequence[Operation]) -> str | None:
    """A communication that some participants never joined, if that can no longer change."""
    states = record.positions[-1].states if record.positions else ()
    reasons: dict[str, list[int]] = {}
    for rank in missing_ranks(entries):
        state = states[rank] if rank < len(states) else None
        if state is not None and state.phase in ENDED:
            reason = ENDED[state.phase]
        elif record.meta.mode == "step":
            continue
        elif state is None:
            reason = "never came to it"
        elif state.phase == "running":
            reason = "had not come to it"
        else:
            reason = f"did not: it {str(state).removeprefix(f'rank {rank} ')}"
        reasons.setdefault(reason, []).append(rank)
    if not reasons:
        return None
    alone = (parts[0] for parts in record.by_match.values() if is_message(parts[0].name) and not is_complete(parts))
    return tags_differ(entries, tuple(alone)) or _left_alone(entries, reasons)


def left_alone(parts: Sequence[Operation], states: Sequence[RankState], alone: Sequence[Operation]) -> str | None:
    """The sentence of a communication whose missing participants have ended; None while one of them may come.

    parts: those who came. alone: all messages that have met no partner.
    """
    reasons: dict[str, list[int]] = {}
    for rank in missing_ranks(parts):
        phase = states[rank].phase
        if phase not in ENDED:
            return None
        reasons.setdefault(ENDED[phase], []).append(rank)
    return tags_differ(parts, alone) or _left_alone(parts, reasons)


def tags_differ(parts: Sequence[Operation], alone: Sequence[Operation]) -> str | None:
    """A sentence if a message waits beside one that its tag alone keeps from meeting it. alone: all that met none."""
    mine = parts[0]
    if not is_message(mine.name):
        return None
    for other in alone:
        names = {canonical(mine.name): mine, canonical(other.name): other}
        send, receive = names.get("send"), names.get("recv")
        if (
            send is not None
            and receive is not None
            and send.group == receive.group
            and send.peer == receive.rank
            and receive.peer in (send.rank, ANY)
            and send.tag != receive.tag
        ):
            return (
                f"rank {send.rank} sends to rank {receive.rank} with tag {send.tag}{send.at_line}, rank {receive.rank} "
                f"receives with tag {receive.tag}{receive.at_line}: a message and its receive must have the same tag."
            )
    return None


def _left_alone(parts: Sequence[Operation], reasons: Mapping[str, Sequence[int]]) -> str:
    calls: dict[str, list[int]] = {}
    for e in parts:
        calls.setdefault(f"{e.words if is_message(e.name) else canonical(e.name)}{e.at_line}", []).append(e.rank)
    who = ", ".join(f"{listed(ranks)} {'calls' if len(ranks) == 1 else 'call'} {text}" for text, ranks in calls.items())
    why = ", ".join(f"{listed(ranks)} {reason}" for reason, ranks in reasons.items())
    return f"{who}; {why}."


def own_misfit(e: Operation) -> str | None:
    """A sentence if one rank's own list or whole buffer cannot hold a piece for each rank of the group, else None."""
    name = canonical(e.name)
    if name not in ("gather", "scatter", "all_gather", "reduce_scatter"):
        return None
    gathers = name.endswith("gather")
    parts, wholes = (e.inputs, e.outputs) if gathers else (e.outputs, e.inputs)
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
        f"rank {e.rank} calls {name} between {_words(parts)} and {_words(wholes)}{e.at_line}: the whole must "
        f"hold the part {len(e.ranks)} times, once per rank."
    )


def misfit(entries: Sequence[Operation]) -> str | None:
    """A sentence if what one rank gives another is not what that one makes room for, else None.

    Where the pieces are not known (all_to_all on whole tensors, whose split sizes are not recorded) the totals of all
    ranks are compared once everybody is there. Of a rank that died in it only one tensor is known, which counts where
    it is the same for all: what it gives in all_gather, what it has room for in reduce_scatter.
    """
    name = canonical(entries[0].name)
    if name not in EXCHANGES:
        return None
    gives, takes = name == "all_gather", name == "reduce_scatter"
    entries = [e for e in entries if (e.inputs or takes) and (e.outputs or gives) and e.regions]
    if not entries:
        return None
    given = [_pieces(e, e.inputs, alike="all_gather") if e.inputs else None for e in entries]
    room = [_pieces(e, e.outputs, alike="reduce_scatter") if e.outputs else None for e in entries]
    if name == "all_to_all" and (None in given or None in room):
        return _totals(entries)
    for giver, gifts in zip(entries, given, strict=True):
        for taker, places in zip(entries, room, strict=True):
            if gifts is None or places is None or giver.ranks != taker.ranks:
                continue
            there, here = gifts[giver.ranks.index(taker.rank)], places[taker.ranks.index(giver.rank)]
            if there != here:
                return _unequal(giver, taker, there, here)
    return None


def _pieces(e: Operation, regions: Sequence[Region], alike: str) -> list[int] | None:
    """Elements that a rank gives, or makes room for, by member of the group: in `alike` the same for all of them.

    None where they are not known.
    """
    n, name = len(e.ranks), canonical(e.name)
    if name == alike:
        return [_count(regions)] * n
    if len(regions) == n:
        return [prod(r.shape) for r in regions]
    return None if name == "all_to_all" else [_count(regions) // n] * n


def _own_list(e: Operation, part: Region, wholes: Sequence[Region]) -> str | None:
    n, name = len(e.ranks), canonical(e.name)
    verb = "gathers into" if name.endswith("gather") else "scatters"
    if len(wholes) != n:
        length = counted(len(wholes), "tensor")
        return f"rank {e.rank} {verb} a list of {length} in {name}{e.at_line}: it needs one for each of {n} ranks."
    odd = next((r for r in wholes if (prod(r.shape), r.dtype) != (prod(part.shape), part.dtype)), None)
    if odd is None:
        return None
    return (
        f"rank {e.rank} {verb} {size(odd.shape, odd.dtype)} beside {size(part.shape, part.dtype)} in "
        f"{name}{e.at_line}: every tensor of the list must be like the single one."
    )


def _totals(entries: Sequence[Operation]) -> str | None:
    given, room = sum(_count(e.inputs) for e in entries), sum(_count(e.outputs) for e in entries)
    if len(entries) < len(entries[0].ranks) or given == room:
        return None
    return (
        f"{listed(e.rank for e in entries)} give {given} elements in all_to_all{entries[0].at_line} and make "
        f"room for {room}: what all ranks give and what they take must be equal."
    )


def _unequal(giver: Operation, taker: Operation, given: int, room: int) -> str:
    name, gift = f"{canonical(giver.name)}{giver.at_line}", counted(given, "element")
    if giver.rank == taker.rank:
        return f"rank {giver.rank} gives itself {gift} in {name} and makes room for {room}: both must be equal."
    return (
        f"rank {giver.rank} gives rank {taker.rank} {gift} in {name}, "
        f"rank {taker.rank} makes room for {room}{taker.at_line}: both must be equal."
    )


def _count(regions: Sequence[Region]) -> int:
    return sum(prod(r.shape) for r in regions)


def _words(regions: Sequence[Region]) -> str:
    first = size(regions[0].shape, regions[0].dtype)
    return first if len(regions) == 1 else f"{len(regions)} tensors"
