"""What labs 03a and 03b have to say about gradients: the usual mistakes in averaging them, and what averaging may send.

A result is one flat tensor; `facts['parts']` names its pieces, [(name, elements), ...], and `facts['own']` is what each
rank would have without the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kit.grade.traffic import collectives, on_each_rank
from kit.grade.values import all_same, difference, is_tensor, on_each_result, same
from kit.grade.words import joined, line
from kit.trace.text import named

if TYPE_CHECKING:
    from kit.grade.exercise import Case, Diagnosis, Rule, Run
    from kit.trace.facts import RankTrace


def _pieces(case: Case, flat: Any, key: str = "parts") -> Iterator[tuple[str, Any]]:
    names = [name for name, _ in case.facts[key]]
    return zip(names, flat.split([count for _, count in case.facts[key]]), strict=True)


def _names(names: Sequence[str]) -> str:
    return joined(dict.fromkeys(names))


# ---------------------------------------------------------------------------------------------- rules about values


def state_changed(run: Run) -> str | None:
    """A rule: parameters are as they were."""
    for rank, (before, arguments) in enumerate(zip(run.case.facts["state"], run.after, strict=True)):
        after = arguments[-1]["state"]
        changed = [
            name
            for (name, one), (_, other) in zip(
                _pieces(run.case, before, "state parts"), _pieces(run.case, after, "state parts"), strict=True
            )
            if not same(other, one, 0.0)
        ]
        if changed:
            return (
                f"rank {rank} changed its parameters ({_names(changed)}): gradients are averaged, p.grad and not p;"
                " the optimizer then does the same on every rank"
            )
    return None


def returns_nothing(run: Run) -> str | None:
    """A rule: what is done in place is not returned."""
    rank, got = next(
        ((r, arguments[-1]["returned"]) for r, arguments in enumerate(run.after) if arguments[-1]["returned"]), (0, "")
    )
    return (
        f"rank {rank} returned {got}, where None is promised: what is done is done in the model itself" if got else None
    )


def part_differs(what: str) -> Diagnosis:
    """The plain difference, with the name of the parameter. what: 'gradient'."""

    @on_each_result
    def diagnosis(run: Run, rank: int, got: Any, right: Any) -> str | None:
        if not is_tensor(got) or got.shape != right.shape:
            return None
        scale = 1e-5 * float(right.abs().max())
        for (name, mine), (_, wanted) in zip(_pieces(run.case, got), _pieces(run.case, right), strict=True):
            told = difference(mine, wanted, scale / max(float(wanted.abs().max()), 1e-12))
            if told:
                return f"rank {rank}'s {what} of {name} is {told}"
        return None

    return diagnosis


def _own(run: Run, expected: Sequence[Any]) -> tuple[list[int], list[int]]:
    """(ranks that still have something of their own, which parts those are on the first of them)."""
    kept: dict[int, list[int]] = {}
    for rank, (got, right) in enumerate(zip(run.results, expected, strict=True)):
        triples = zip(*(_pieces(run.case, x) for x in (got, right, run.case.facts["own"][rank])), strict=True)
        pieces = [(mine, want, alone) for (_, mine), (_, want), (_, alone) in triples]
        kept[rank] = [i for i, (mine, want, alone) in enumerate(pieces) if same(mine, alone) and not same(mine, want)]
    ranks = [rank for rank, parts in kept.items() if parts]
    return ranks, kept[ranks[0]] if ranks else []


def first_step_only(run: Run, expected: Sequence[Any]) -> str | None:
    """The first step was averaged, none after it. Needs passes of several steps, as `hook_cases` makes them."""
    ranks, parts = _own(run, expected)
    names, count = [name for name, _ in run.case.facts["parts"]], len(run.case.facts["parts"])
    if not ranks or parts != list(range(len(set(names)), count)):
        return None
    return (
        f"{named(ranks)} {_has(ranks)} the mean after the first step, and only own gradients after the next: what"
        " hooks count or collect has to begin anew with every step"
    )


def partly_divided(run: Run, expected: Sequence[Any]) -> str | None:
    """The sum was divided for some parameters only: a division that stands behind the loop is done once."""
    n = run.case.world
    whole, right = [], []
    for got, wanted in zip(run.results, expected, strict=True):
        if not is_tensor(got) or got.shape != wanted.shape:
            return None
        for (name, mine), (_, mean) in zip(_pieces(run.case, got), _pieces(run.case, wanted), strict=True):
            if same(mine, mean):
                right.append(name)
            elif same(mine, mean * n):
                whole.append(name)
            else:
                return None
    if not whole or not right:
        return None
    return (
        f"the gradients of {_names(whole)} are {n} times too large, and only those of {_names(right)} were divided:"
        " every gradient is divided, inside the loop"
    )


def lacking_one(run: Run, expected: Sequence[Any]) -> str | None:
    """What became of the gradient that one rank does not have. Needs `facts['lacking']` and cases made with it."""
    n, lacking = run.case.world, run.case.facts["lacking"]
    pairs = list(zip(run.results, expected, strict=True))
    if lacking is None or not all(is_tensor(got) and got.shape == right.shape for got, right in pairs):
        return None
    wrong = {
        (rank, name)
        for rank, (got, right) in enumerate(pairs)
        for (name, mine), (_, mean) in zip(_pieces(run.case, got), _pieces(run.case, right), strict=True)
        if not same(mine, mean)
    }
    if len({name for _, name in wrong}) != 1:
        return None
    name = next(name for _, name in wrong)
    of = {rank: dict(_pieces(run.case, got))[name] for rank, (got, _) in enumerate(pairs)}
    mean = dict(_pieces(run.case, expected[0]))[name]
    if {rank for rank, _ in wrong} == {lacking} and not bool(of[lacking].any()):
        return (
            f"rank {lacking}, whose own gradient of {name} is None, still has none: what it adds as zeros comes back as"
            " the sum, and belongs into p.grad there too"
        )
    if all(same(mine, mean * n / (n - 1)) for mine in of.values()):
        return (
            f"every rank's gradient of {name}, which rank {lacking} does not have, is the sum divided by {n - 1}: zeros"
            f" count as a gradient too, so divide by the number of ranks, {n}"
        )
    return None


def tail_dropped(run: Run, expected: Sequence[Any]) -> str | None:
    """The bucket of the first parameter, the last one to be filled, was not sent."""
    ranks, parts = _own(run, expected)
    if not ranks or parts[0] != 0 or len(parts) == len(run.case.facts["parts"]):
        return None
    return (
        f"{named(ranks)} still {_has(ranks)} only own gradients of"
        f" {_names([run.case.facts['parts'][i][0] for i in parts])}: the last bucket is sent too, full or not"
    )


def still_own(run: Run, expected: Sequence[Any]) -> str | None:
    """Gradients that nobody averaged."""
    ranks, parts = _own(run, expected)
    if not ranks:
        return None
    names = [run.case.facts["parts"][i][0] for i in parts]
    if not any(collectives(part) for part in run.trace.ranks):
        hooked = ": a hook that is never called, or waits for one that has none, sends nothing"
        return (
            f"{named(ranks)} still {_has(ranks)} only own gradients: no rank called all_reduce"
            f"{hooked if 'each' in run.case.facts else ''}"
        )
    if len(names) == len(run.case.facts["parts"]):
        return (
            f"{named(ranks)} still {_has(ranks)} only own gradients: what is averaged before backward has filled"
            " p.grad is lost, and so is a mean that nobody puts into p.grad"
        )
    all_but_one = "each" in run.case.facts and len(set(names)) == len(dict(run.case.facts["parts"])) - 1
    why = ", only those of the parameter a loop ended with: a hook uses the parameter it is called with"
    return (
        f"{named(ranks)} still {_has(ranks)} only own gradients of {_names(names)}: those were not averaged"
        f"{why if all_but_one else ''}"
    )


def _has(ranks: Sequence[int]) -> str:
    return "has" if len(ranks) == 1 else "have"


def wrong_divisor(run: Run, expected: Sequence[Any]) -> str | None:
    """All gradients are the same multiple of the mean."""
    n, right = run.case.world, expected[0]
    if not all(is_tensor(got) and got.shape == right.shape for got in run.results):
        return None
    factor = float((run.results[0].double() * right.double()).sum() / (right.double() ** 2).sum())
    if abs(factor) < 1e-6 or not all(same(got, right * factor) for got in run.results):
        return None
    divisor, parameters, each = n / factor, len(dict(run.case.facts["parts"])), run.case.facts.get("each", 1)
    summed = f"that is {n} ranks times {each} micro-batches, whose gradients shall add up"
    for usual, name in (
        (n * n, "it was divided twice, or by a number that is not that of the ranks"),
        (parameters, f"{parameters} is the number of parameters"),
        (n * each, summed),
    ):
        if abs(divisor - usual) < 1e-3:
            return f"every gradient is {factor:.3g} times the mean, the sum of {n} ranks divided by {usual}: {name}"
    return (
        f"every gradient is {factor:.3g} times the mean: the sum of {n} ranks is divided by {divisor:.4g}, not by {n}"
    )


def earlier_left_out(run: Run, expected: Sequence[Any]) -> str | None:
    """Only what the last micro-batch added was averaged. Needs `facts['own before']`."""
    facts = run.case.facts
    if facts["each"] == 1:
        return None
    last = sum(own - before for own, before in zip(facts["own"], facts["own before"], strict=True)) / run.case.world
    if not all_same(run.results, [before + last for before in facts["own before"]]):
        return None
    return (
        "every rank averaged what the last micro-batch added, and kept its own sum of those before: average p.grad,"
        " after it has been added to (register_post_accumulate_grad_hook), not the gradient on its way there"
    )


def miscounted(run: Run, expected: Sequence[Any]) -> str | None:
    """Right for one micro-batch, wrong for several: cases with one come first."""
    each = run.case.facts["each"]
    told = part_differs("gradient")(run, expected) if each > 1 else None
    return told and (
        f"{told}: with micro_batches = 1 all was right, with {each} it is not, so look at what is counted; each"
        " parameter's own hook is called once in every pass"
    )


def mixed_up(run: Run, expected: Sequence[Any]) -> str | None:
    """Another order of sending on each rank: all gradients are there, added to the wrong ones."""
    if not run.case.facts["mixed"] or all_same(run.results, expected):
        return None
    got, right = sum(run.results).double(), sum(expected).double()
    if abs(float(got.sum() - right.sum())) > 1e-5 * float(right.abs().sum()):
        return None
    return (
        "gradients of one parameter were added to those of another: backward does not take the parameters in the same"
        " order on every rank, so all-reduces begin in a fixed order, not in the order in which gradients are complete"
    )


def wrong_state(run: Run, expected: Sequence[Any]) -> str | None:
    """A rank holds the state of another rank than the source, or everybody his own."""
    source, own = run.case.facts["source"], run.case.facts["own"]
    if all(same(got, mine) for got, mine in zip(run.results, own, strict=True)):
        return f"every rank still has its own state: that of rank {source} has to reach the others"
    for other in range(run.case.world):
        if other != source and all(same(got, own[other]) for got in run.results):
            return f"wrong source: every rank has the state of rank {other} where rank {source} is the source"
    return None


def averaged_state(run: Run, expected: Sequence[Any]) -> str | None:
    """The mean of all states, or their sum."""
    own = run.case.facts["own"]
    if same(run.results[0], sum(own) / run.case.world, 1e-4):
        return (
            f"every rank has the mean of all states: equal, but no state anybody drew; that of rank"
            f" {run.case.facts['source']} is asked for"
        )
    return None


def forgotten(run: Run, expected: Sequence[Any]) -> str | None:
    """Some tensors were sent, others not."""
    ranks, parts = _own(run, expected)
    if not ranks:
        return None
    kept = [run.case.facts["parts"][i][0] for i in parts]
    which = {("mask",): ", a buffer", ("scale",): ", which is frozen"}.get(tuple(kept), "")
    return (
        f"rank {ranks[0]} still has its own {_names(kept)}{which}: whatever forward reads must be the same"
        " everywhere, trained or not"
    )


# --------------------------------------------------------------------------------------------- rules about traffic


def overlapped(which: str = "") -> Rule:
    """In each averaged backward pass the first all-reduce begins, and nobody waits for it, before the last gradient.

    which: what to begin with. Needs what `drives.attach` has seen.
    """

    @on_each_rank
    def rule(run: Run, part: RankTrace) -> str | None:
        facts = run.case.facts
        made = collectives(part)
        arrivals = run.after[part.rank][-1]["arrivals"][facts["each"] - 1 :: facts["each"]]
        if facts["mixed"] or len(facts["parts"]) < 4 or len(made) <= len(arrivals):
            return None  # one bucket: nothing can go before the last gradient
        per_pass = len(made) // len(arrivals)
        for first, arrival in zip(made[::per_pass], arrivals, strict=False):
            where = line(first, run)
            if first.issued > arrival:
                return (
                    f"rank {part.rank} sent nothing before its last gradient was there; the first {first.name} is from"
                    f" {where}: begin as soon as something is complete, so that it travels while backward computes the"
                    f" rest{which}"
                )
            if first.waits and first.waits[0][0] < arrival:
                return (
                    f"rank {part.rank} waited for its first {first.name} while backward still had gradients to"
                    f" compute, from {where}: begin it with async_op=True and wait at the end of backward"
                )
        return None

    return rule
