"""Lab 00: who am I, who speaks, and the first hang."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

from kit.grade import inputs
from kit.grade.diagnose import nothing_returned, only_rank_zero, same_everywhere
from kit.grade.exercise import Case, Exercise, Run
from kit.grade.traffic import collectives, collectives_at_most, on_each_rank, only, silent
from kit.grade.words import counted, line
from kit.topics.ranks import mistakes
from kit.trace.text import named

if TYPE_CHECKING:
    from kit.trace.facts import RankTrace

LAB = "00_ranks"
COLLECTIVES = ("all_reduce", "reduce", "gather", "all_gather", "broadcast", "barrier")


def _share_cases(world: int, random: Random) -> Iterator[Case]:
    whole = world * random.randint(2, 9)
    for total in (whole, whole + 1, whole + world - 1, random.randint(0, world - 1)):
        yield Case(world, ((total,),) * world, total)


def _shares(total: int, n: int) -> list[Any]:
    base, extra = divmod(total, n)
    starts = [rank * base + min(rank, extra) for rank in range(n + 1)]
    return [(starts[rank], starts[rank + 1]) for rank in range(n)]


def _pairs(run: Run) -> list[tuple[int, int]] | None:
    return [(pair[0], pair[1]) for pair in run.results] if all(map(_is_pair, run.results)) else None


def _is_pair(got: Any) -> bool:
    return isinstance(got, tuple | list) and len(got) == 2 and all(isinstance(number, int) for number in got)


def _no_pair(run: Run, expected: Sequence[Any]) -> str | None:
    if _pairs(run) is not None:
        return None
    rank = next(rank for rank, got in enumerate(run.results) if not _is_pair(got))
    got = run.results[rank]
    fraction = isinstance(got, tuple | list) and any(isinstance(number, float) for number in got)
    whole = "; `//` divides whole numbers, `/` does not" if fraction else ""
    return f"rank {rank} returned {got!r}, where two whole numbers (start, stop) are asked for{whole}"


def _stop_included(run: Run, expected: Sequence[Any]) -> str | None:
    pairs = _pairs(run)
    if pairs and pairs == [(start, stop - 1) for start, stop in expected]:
        return (
            f"every stop is one too small: rank 0's {pairs[0]} leaves out item {pairs[0][1]}, because stop is not"
            " included"
        )
    return None


def _of_another_world(run: Run, expected: Sequence[Any]) -> str | None:
    n, pairs = run.case.world, _pairs(run)
    if not any(pairs == _shares(run.case.size, more)[:n] for more in range(n + 1, 9)):
        return None
    return f"these are shares for more ranks than there are, {n}: dist.get_world_size() says how many"


def _size_for_stop(run: Run, expected: Sequence[Any]) -> str | None:
    if _pairs(run) != [(start, stop - start) for start, stop in expected]:
        return None
    rank = next(rank for rank, (start, _) in enumerate(expected) if start)
    return (
        f"rank {rank} returned {run.results[rank]}, where its share starts and its size: the second is where it stops"
    )


def _uncovered(run: Run, expected: Sequence[Any]) -> str | None:
    pairs = _pairs(run) or []
    base, n = run.case.size // run.case.world, run.case.world
    owners = [
        [rank for rank, (start, stop) in enumerate(pairs) if start <= item < stop] for item in range(run.case.size)
    ]
    lost = [item for item, ranks in enumerate(owners) if not ranks]
    if lost:
        items = f"item {lost[0]}" if len(lost) == 1 else f"items {', '.join(map(str, lost))}"
        even = pairs == [(rank * base, (rank + 1) * base) for rank in range(n)]
        why = "the remainder of the division is lost" if even else f"{_gap(pairs)}a share starts where the last stops"
        return f"{items} of {run.case.size} belong{'s' if len(lost) == 1 else ''} to no rank: {why}"
    shared = next((item for item, ranks in enumerate(owners) if len(ranks) > 1), None)
    if shared is not None:
        return f"item {shared} belongs to {named(owners[shared])} at once: a share ends where the next one starts"
    return None


def _gap(pairs: Sequence[tuple[int, int]]) -> str:
    """Where a share does not follow the one before it."""
    if pairs[0][0] != 0:
        return f"rank 0 starts at {pairs[0][0]}; the first share starts at 0, and after it "
    for rank, ((_, stop), (start, _)) in enumerate(pairwise(pairs)):
        if stop != start:
            return f"rank {rank} stops at {stop} and rank {rank + 1} starts at {start}; "
    return f"the last rank stops at {pairs[-1][1]}; "


def _uneven(run: Run, expected: Sequence[Any]) -> str | None:
    pairs = _pairs(run) or []
    held = [stop - start for start, stop in pairs]
    if held and max(held) - min(held) > 1:
        most, least = held.index(max(held)), held.index(min(held))
        return (
            f"uneven shares: rank {most} has {counted(held[most], 'item')}, rank {least} has {held[least]}; two shares"
            " differ by one at most: the first total % n ranks take one item more"
        )
    if held and sorted(held) == sorted(stop - start for start, stop in expected):
        return "the right sizes on the wrong ranks: it is the first total % n ranks that take one item more"
    return None


WHO_AM_I = Exercise(
    id="who-am-i",
    lab=LAB,
    function="my_share",
    size="total",
    cases=_share_cases,
    oracle=lambda case: _shares(case.size, case.world),
    hints=(
        "Two numbers tell a rank who it is: its own, and how many there are. With 10 items on 4 ranks, who gets what?",
        (
            "`divmod(total, n)` gives what everyone gets and how many items are left over. The first ranks take one of"
            " those each."
        ),
        (
            "With `base, extra = divmod(total, n)` a share starts at `r * base + min(r, extra)`, and stops where rank r"
            " + 1 starts."
        ),
    ),
    diagnoses=(
        nothing_returned,
        _no_pair,
        same_everywhere("the same code must ask dist.get_rank() to find out where it runs"),
        _of_another_world,
        _stop_included,
        _size_for_stop,
        _uncovered,
        _uneven,
    ),
    traffic=(silent,),
    mistakes=mistakes.WHO_AM_I,
    praise="every item once, and nobody had to ask anybody",
)


def _loss_cases(world: int, random: Random) -> Iterator[Case]:
    for _ in range(2):
        losses = inputs.tensor(world, random).abs()
        yield Case(world, tuple((loss.clone(),) for loss in losses), 1)


def _mean(case: Case) -> float:
    return float(sum(float(loss) for (loss,) in case.arguments) / case.world)


def _printed(run: Run, rank: int) -> list[str]:
    text = "".join(output.text for output in run.trace.ranks[rank].output if output.stream == "stdout")
    return [line for line in text.splitlines() if line.strip()]


def _one_voice(run: Run) -> str | None:
    """What was printed, by whom, and the number in it."""
    lines = [_printed(run, rank) for rank in range(run.case.world)]
    loud = [rank for rank in range(1, run.case.world) if lines[rank]]
    if loud:
        return f"{named(loud)} printed too ({lines[loud[0]][0]!r}): only rank 0 speaks"
    if not lines[0] and run.results[0] is not None:
        return f"rank 0 returned {run.results[0]!r} and printed nothing: print() shows a line, return does not"
    if len(lines[0]) != 1:
        return (
            f"rank 0 printed {counted(len(lines[0]), 'line')}: one line is asked for, 'mean loss {_mean(run.case):.4f}'"
        )
    said, mean = lines[0][0].strip(), _mean(run.case)
    if said == f"mean loss {mean:.4f}":
        return None
    number = re.search(r"-?\d+(\.\d+)?", said)
    value = float(number.group()) if number else None
    own = float(run.case.arguments[0][0])
    if value is not None and abs(value - mean) > 1e-3:
        if abs(value - mean * run.case.world) < 1e-3:
            return (
                f"rank 0 printed {said!r}, {run.case.world} times the mean {mean:.4f}: the sum was not divided by the"
                " world size"
            )
        n = run.case.world
        for divisor, told in ((1, "its own loss"), (n, f"its own loss over {n}")):
            if abs(value - own / divisor) < 1e-3:
                return (
                    f"rank 0 printed {said!r}, {told}: the mean of all ranks is {mean:.4f}, and the others' losses"
                    " have to reach it first"
                )
        other = next((m for m in range(2, 9) if m != n and abs(value - mean * n / m) < 1e-3), None)
        if other is not None:
            return f"rank 0 printed {said!r}, the sum over {other}: there are {n} ranks here, so the mean is {mean:.4f}"
    elif value is not None:
        if "tensor(" in said:
            return f"rank 0 printed {said!r}: a tensor prints as tensor(...), its number is total.item()"
        if f"{mean:.4f}" in said:
            return f"rank 0 printed {said!r}: the number is right, and the whole line is 'mean loss {mean:.4f}'"
        return f"rank 0 printed {said!r}: the number is right, and 'mean loss {mean:.4f}' has four decimals, no more"
    return f"rank 0 printed {said!r} where 'mean loss {mean:.4f}' is right"


@on_each_rank
def _to_rank_zero(run: Run, part: RankTrace) -> str | None:
    """Rank 0 prints, so it is rank 0 that has to have the sum."""
    away = next((one for one in collectives(part) if one.name in ("reduce", "gather") and one.root), None)
    if away is None:
        return None
    return (
        f"rank {part.rank} called {away.words}, from {line(away, run)}: rank {away.root} has the result then, and what"
        " rank 0 prints is whatever was left in its tensor"
    )


RANK_ZERO_SPEAKS = Exercise(
    id="rank-zero-speaks",
    lab=LAB,
    function="speak",
    size="",
    cases=_loss_cases,
    oracle=lambda case: [None] * case.world,
    hints=(
        "Two things happen here: all losses come together, and one rank speaks. Who has to take part in the first?",
        "`dist.reduce` or `dist.all_reduce` adds up. Every rank calls it; the `if` stands only in front of the print.",
        (
            "`total = loss.clone()`, then `dist.all_reduce(total)` on every rank, then `if dist.get_rank() == 0:` print"
            " `f'mean loss {total.item() / dist.get_world_size():.4f}'`."
        ),
    ),
    before=(_to_rank_zero, _one_voice),  # what is left there may even be right
    traffic=(
        only(COLLECTIVES, "one collective: reduce, all_reduce or gather"),
        collectives_at_most(1, "one reduce brings all losses together"),
    ),
    errors=(
        (
            r"Must specify (global_rank|dst)",
            "One rank gets the result of a reduce or a gather, and the call says which: dist.reduce(x, dst=0).",
        ),
    ),
    advice=(
        (
            r"finished without it|returned without|never",
            "Every rank has to call the collective: only the printing belongs under `if rank == 0`.",
        ),
    ),
    mistakes=mistakes.RANK_ZERO_SPEAKS,
    praise="one line from rank 0, and everybody took part in the sum",
)


def _item_cases(world: int, random: Random) -> Iterator[Case]:
    for empty in ((), (random.randrange(world),), tuple(range(world))):
        counts = [0 if rank in empty else random.randint(1, 9) + 10 * rank for rank in range(world)]
        yield Case(world, tuple((inputs.tensor(count, random),) for count in counts), max(counts), {"counts": counts})


def _own_count(run: Run, expected: Sequence[Any]) -> str | None:
    counts = run.case.facts["counts"]
    alone = [rank for rank, got in enumerate(run.results) if got == counts[rank] != expected[rank]]
    if len(alone) == run.case.world:
        return (
            f"every rank counted only its own items: rank 0 returned {run.results[0]} where {expected[0]} is the number"
            " on all ranks"
        )
    one = next((rank for rank, count in enumerate(counts) if set(run.results) == {count} != {expected[0]}), None)
    if one is not None:
        return f"every rank returned {counts[one]}, which rank {one} alone holds: the counts of all are to be added"
    return None


def _own_zero(run: Run, expected: Sequence[Any]) -> str | None:
    """A rank that holds nothing took part, and returned 0 all the same."""
    counts = run.case.facts["counts"]
    wrong = [rank for rank, got in enumerate(run.results) if got != expected[rank]]
    if not wrong or any(counts[rank] or run.results[rank] != 0 for rank in wrong):
        return None
    return (
        f"{named(wrong)} returned 0 where {expected[0]} is right: a rank that holds nothing returns the number of all"
        " ranks too, which it has after the all_reduce"
    )


def _own_sum(run: Run, expected: Sequence[Any]) -> str | None:
    """The items were added up, not counted."""
    total = sum(float(items.sum()) for (items,) in run.case.arguments)
    if not all(isinstance(got, int | float) and abs(got - total) <= 1 for got in run.results):
        return None
    return f"every rank returned {run.results[0]}, the sum of all items: how many they are is asked for, {expected[0]}"


SAME_KIND = (
    r"(dtypes|shapes) must be equal",
    "All ranks hand in one number of the same kind and shape, also the rank that holds nothing: torch.tensor(0) beside"
    " torch.tensor(5).",
)
NO_TENSOR = (
    r"Expected parameter `tensor`",
    "all_reduce adds up tensors, in place: make one of the number, torch.tensor(len(mine)).",
)

FIRST_RESCUE = Exercise(
    id="first-rescue",
    lab=LAB,
    function="count_items",
    size="K",
    cases=_item_cases,
    oracle=lambda case: [sum(case.facts["counts"])] * case.world,
    hints=(
        "Run it where one rank holds nothing, and read the sentences: who waits, and for whom?",
        "A collective is a meeting: it starts when everybody is there. Which line lets a rank go home before it?",
        (
            "Adding 0 is adding. Take the early `return` away: a rank without items calls `dist.all_reduce` with a"
            " count of 0."
        ),
    ),
    diagnoses=(nothing_returned, _own_count, _own_zero, _own_sum, only_rank_zero),
    traffic=(collectives_at_most(1, "one all_reduce of one number is all it takes"),),
    errors=(SAME_KIND, NO_TENSOR),
    advice=(
        SAME_KIND,
        (
            r"call the same operation|finished without|returned without|never",
            lambda case, trace: (
                "A rank that holds nothing still has to call: it adds 0, and the others wait for it."
                if 0 in case.facts["counts"]
                else "Every rank has to call the same collective, whatever it holds: each waits for all others."
            ),
        ),
    ),
    mistakes=mistakes.FIRST_RESCUE,
    praise="also where ranks hold nothing",
)

EXERCISES = (WHO_AM_I, RANK_ZERO_SPEAKS, FIRST_RESCUE)
