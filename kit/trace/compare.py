"""Whether the participants of one communication agree, and one sentence when they do not.

The referee asks before data moves (raw gloo would abort or compute nonsense); `mismatches` asks afterwards about a
recorded run. Both use `disagreement`, so both say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import prod

from kit.trace.facts import Operation, Region, Trace
from kit.trace.pairs import by_match, is_complete, missing_ranks
from kit.trace.pieces import misfit, own_misfit
from kit.trace.sentences import at_line, canonical, is_message, line_text, listed, operation_words, sentence, size
from kit.trace.waits import ENDED

# Where every rank must hand in, or take, tensors of one shape. Lists and uneven pieces are compared in `pieces`.
ALIKE = {"all_reduce": "in", "reduce": "in", "broadcast": "any", "gather": "in", "scatter": "out"}
TO_ROOT = frozenset({"reduce", "gather"})


def disagreement(entries: Sequence[Operation]) -> str | None:
    """One sentence about the first difference between operations that share one match, or None if they agree.

    entries: the parts of one communication that are known so far, at most one per rank, all participants or only
    some. Compared, in this order: the operation, its root or source, the reduction, the dtype, the shapes. Shapes must
    be equal where all ranks hand in the same tensor (all_reduce, reduce, broadcast, gather, scatter); where ranks
    exchange pieces (all_gather, reduce_scatter, all_to_all) what one gives must be what the other makes room for, so
    uneven pieces are legal. For a send and its receive the dtype and the number of elements must be equal.
    """
    if not entries:
        return None
    first = entries[0]
    if is_message(first.name) and all(is_message(e.name) for e in entries):
        return _message(entries)
    signature = _signature(first)
    if all(_signature(other) == signature for other in entries[1:]):
        return own_misfit(first) or misfit(entries)
    same_call = "every rank of a group must call the same operation in the same order"
    return (
        _differ(entries, lambda e: canonical(e.name), call_words, same_call)
        or _differ(entries, lambda e: e.root, operation_words, f"every rank must name the same {_root_word(first)}")
        or _differ(entries, lambda e: e.reduce, _call_reduce, "every rank must name the same reduction")
        or _differ(entries, _dtype, call_words, "the dtypes must be equal on every rank")
        or _differ(entries, _alike, call_words, "the shapes must be equal on every rank")
        or next((text for text in map(own_misfit, entries) if text), None)
        or misfit(entries)
    )


def mismatches(trace: Trace) -> tuple[str, ...]:
    """What the participants of a run's operations disagreed on, in order of issue, one sentence each; empty if nothing.

    Names differences as `disagreement` does, and participants that never came. Only the first is named per group, and
    per pair of ranks for messages: what follows is its consequence. Ranks that may still come (a session that is being
    stepped) are not called missing.
    """
    found: list[str] = []
    blamed: set[Hashable] = set()
    for entries in by_match(trace).values():
        thread = (entries[0].group, _pair(entries[0]))
        if thread in blamed:
            continue
        text = disagreement(entries)
        if text is None and not is_complete(entries):
            text = _never_came(trace, entries)
        if text is not None:
            blamed.add(thread)
            found.append(text)
    return tuple(found)


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
    return tuple(r.shape for r in e.regions if r.role != passed_over)


def _differ(
    entries: Sequence[Operation],
    key: Callable[[Operation], Hashable],
    words: Callable[[Operation], str],
    rule: str,
) -> str | None:
    if len({key(entry) for entry in entries}) < 2:
        return None
    several_files = len({e.place.file for e in entries if e.place}) > 1
    callers: dict[str, list[int]] = {}
    for e in entries:
        line = line_text(e.place, several_files)
        callers.setdefault(f"{words(e)}{f' ({line})' if line else ''}", []).append(e.rank)
    who = ", ".join(
        f"{listed(ranks)} {'calls' if len(ranks) == 1 else 'call'} {text}"
        for text, ranks in sorted(callers.items(), key=lambda item: min(item[1]))
    )
    return f"{who}: {rule}."


def _call_reduce(e: Operation) -> str:
    return f"{canonical(e.name)} with {e.reduce}"


def _root_word(e: Operation) -> str:
    return "destination" if canonical(e.name) in TO_ROOT else "source"


def _message(entries: Sequence[Operation]) -> str | None:
    """A send against its receive. The shape may differ: a message has elements, not dimensions."""
    send = next((e for e in entries if canonical(e.name) == "send"), None)
    receive = next((e for e in entries if canonical(e.name) == "recv"), None)
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
        f"rank {send.rank} sends {size(out.shape, out.dtype)} to rank {receive.rank}{at_line(send.place)}, "
        f"rank {receive.rank} receives {size(into.shape, into.dtype)} from rank {send.rank}{at_line(receive.place)}: "
        f"a message and its buffer must have the same {what}."
    )


def _pair(e: Operation) -> Hashable:
    """Messages between two ranks stand apart from the collectives of a group."""
    return frozenset((e.rank, e.peer)) if is_message(e.name) else None


def _never_came(trace: Trace, entries: Sequence[Operation]) -> str | None:
    """A communication that some participants never joined, if that can no longer change."""
    states = trace.positions[-1].states if trace.positions else ()
    reasons: dict[str, list[int]] = {}
    for rank in missing_ranks(entries):
        state = states[rank] if rank < len(states) else None
        if state is not None and state.phase in ENDED:
            reasons.setdefault(ENDED[state.phase], []).append(rank)
        elif trace.meta.mode == "step":
            continue
        elif state is None:
            reasons.setdefault("never came to it", []).append(rank)
        else:
            reasons.setdefault(f"did not: it {sentence(state).removeprefix(f'rank {rank} ')}", []).append(rank)
    if not reasons:
        return None
    first, callers = entries[0], listed(e.rank for e in entries)
    what = operation_words(first) if is_message(first.name) else canonical(first.name)
    why = ", ".join(f"{listed(ranks)} {reason}" for reason, ranks in reasons.items())
    return f"{callers} {'calls' if len(entries) == 1 else 'call'} {what}{at_line(first.place)}; {why}."
