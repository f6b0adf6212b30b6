"""What lab 05 has to say: the usual mistakes with layers in shards, each by its sentence.

A result has parts, y and gradients. The first part that is wrong is looked for among what it would be with each of the
usual mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

from kit.grade.traffic import collectives, on_each_rank
from kit.grade.values import difference, is_tensor, same
from kit.grade.words import line, size
from kit.topics.tensor.cases import FLOAT, P, attend

if TYPE_CHECKING:
    import torch

    from kit.grade.exercise import Diagnosis, Run
    from kit.trace.facts import RankTrace

    Candidates = Callable[[Run], Iterator[tuple[str, str, Sequence[torch.Tensor]]]]
    """(part, sentence, what the part would be by rank with this mistake)."""

NEAR = 1e-4  # of a part's largest value: rounding in another order is far below, any mistake above

CUT = "was gathered or never cut: what follows works with this rank's shard"
WHOLE = "is a shard, and the whole is asked for"


def shapes(run: Run) -> str | None:
    """A rule: every part has the shape that it should have."""
    n = run.case.world
    for rank, (arguments, parts) in enumerate(zip(run.after, run.case.facts["right"], strict=True)):
        seen = arguments[-1].get("shapes", {})
        for name, got in seen.items():
            wanted = tuple(parts[name].shape)
            if got == wanted:
                continue
            for other in parts:
                if got == tuple(parts[other].shape) and seen.get(other) == wanted:
                    return f"rank {rank} returned {other} where {name} is asked for: `return {', '.join(parts)}`"
            told = f"rank {rank}'s {name} has shape {got} where {wanted} is right"
            if got == wanted[::-1]:
                return (
                    f"{told}: it is transposed; torch's weights are (out, in), and a gradient is shaped like its tensor"
                )
            if name == "db" and got == (run.case.facts.get("B"),):
                return f"{told}: it was summed over the features; the bias meets every sample, so dy.sum(0)"
            if _times(got, wanted) == n:
                return f"{told}: it {CUT}"
            if _times(wanted, got) == n:
                return f"{told}: it {WHOLE}"
            return told
    return None


def norms(run: Run) -> str | None:
    """A rule: no rank normalises more positions than its own."""
    positions = run.case.facts["T"] // run.case.world
    for rank, arguments in enumerate(run.after):
        for shape in arguments[-1].get("normed", ()):
            if shape[0] > positions:
                return (
                    f"rank {rank} normalised all {shape[0]} positions, and {positions} of them are its own: the norm"
                    " comes before gather_in, so that each position is normalised once, and kept once"
                )
    return None


def _times(longer: Sequence[int], shorter: Sequence[int]) -> int | None:
    """By how much one dimension is longer where all others agree."""
    if len(longer) != len(shorter):
        return None
    apart = [(a, b) for a, b in zip(longer, shorter, strict=True) if a != b]
    return apart[0][0] // apart[0][1] if len(apart) == 1 and apart[0][1] and not apart[0][0] % apart[0][1] else None


def first_wrong_part(candidates: Candidates) -> Diagnosis:
    """Tells which part is wrong, and why where it is known."""

    @wraps(candidates)
    def diagnosis(run: Run, expected: Sequence[Any]) -> str | None:
        right = run.case.facts["right"]
        if not all(is_tensor(got) and got.shape == one.shape for got, one in zip(run.results, expected, strict=True)):
            return None
        found = [_parts(got, parts) for got, parts in zip(run.results, right, strict=True)]
        for name in right[0]:
            here, wanted = [parts[name] for parts in found], [parts[name] for parts in right]
            if all(map(_near, here, wanted)):
                continue
            for part, sentence, would_be in candidates(run):
                if part == name and all(map(_near, here, would_be)):
                    return sentence
            rank = next(r for r, (got, one) in enumerate(zip(here, wanted, strict=True)) if not _near(got, one))
            if all(map(_near, here[:1], wanted[:1])) and _reduced(run):
                return (
                    f"rank {rank}'s {name} is wrong, rank 0's is right: dist.reduce leaves the sum on one rank alone,"
                    " dist.all_reduce on every rank"
                )
            if not bool(here[rank].any()):
                return f"rank {rank}'s {name} is 0: autograd found no way back to it, or it was not used"
            return f"rank {rank}'s {name} is wrong, it has {difference(here[rank], wanted[rank], NEAR)}"
        return None

    return diagnosis


def _reduced(run: Run) -> bool:
    return any(op.name == "reduce" for part in run.trace.ranks for op in part.operations)


def _parts(flat: torch.Tensor, like: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    pieces = flat.cpu().split([x.numel() for x in like.values()])
    return {name: piece.view(x.shape) for (name, x), piece in zip(like.items(), pieces, strict=True)}


def _near(got: torch.Tensor, wanted: torch.Tensor) -> bool:
    return got.shape == wanted.shape and same(got, wanted, NEAR)


def _of(run: Run, name: str) -> list[torch.Tensor]:
    return [parts[name] for parts in run.case.facts["right"]]


# ------------------------------------------------------------------------------------------- linear layers


@first_wrong_part
def column(run: Run) -> Iterator[tuple[str, str, Sequence[torch.Tensor]]]:
    """The backward of a column linear, with what people do to it."""
    import torch

    given = [arguments[:4] for arguments in run.case.arguments]
    n = run.case.world
    bare = [x @ w.T for x, w, _, _ in given]
    yield "y", "y lacks the bias: each rank adds its own shard of it to its own outputs", bare
    yield "y", "y was summed over the ranks, but it is this rank's outputs, and nobody else has them", _sums(run, "y")
    yield (
        "y",
        "products were summed over the ranks before the bias, but they are this rank's outputs: nobody else has them",
        [torch.stack(bare).sum(0) + b for _, _, b, _ in given],
    )
    own = [dy @ w for _, w, _, dy in given]
    yield (
        "dx",
        "dx comes from this rank's outputs only: every rank used x, so the terms are summed over the ranks in backward",
        own,
    )
    together = torch.stack([dy for _, _, _, dy in given]).sum(0)
    yield (
        "dx",
        "dy was summed over the ranks, whose outputs are different ones: what is summed is dx",
        [together @ w for _, w, _, _ in given],
    )
    yield "dx", f"dx was divided by {n}: the ranks' terms are parts of one layer, so their sum counts", _over(run, "dx")
    yield "dx", f"dx is {n} times the right one: it was summed twice", [x * n for x in _of(run, "dx")]
    yield from _not_shared(run, ("dw", "db"))
    for name in ("dw", "db"):
        yield (
            name,
            f"{name} was divided by the {len(given[0][0])} samples: dy is given, so nothing is averaged",
            [g / len(given[0][0]) for g in _of(run, name)],
        )


@first_wrong_part
def row(run: Run) -> Iterator[tuple[str, str, Sequence[torch.Tensor]]]:
    """The forward of a row linear, with what people do to it."""
    given = [arguments[:4] for arguments in run.case.arguments]
    n = run.case.world
    terms = [x @ w.T for x, w, _, _ in given]
    whole, bias = _of(run, "y"), given[0][2]
    yield (
        "y",
        f"y has the bias {n} times: each rank added it before the sum; add it once, after",
        [y + (n - 1) * bias for y in whole],
    )
    yield "y", "y lacks the bias: it is added once, after the sum", [y - bias for y in whole]
    yield (
        "y",
        "y is this rank's term only: each rank has an n-th of the inputs, so the terms are summed over the ranks in"
        " forward",
        [term + bias for term in terms],
    )
    yield "y", "y is this rank's term only, without a sum and without the bias", terms
    yield "y", f"y was divided by {n}: its terms are summed, not averaged", [(y - bias) / n + bias for y in whole]
    yield "y", f"y was divided by {n}, bias and all: its terms are summed, not averaged", _over(run, "y")
    yield (
        "y",
        "each rank adds the bias but one: it is on every rank, and added once to the whole sum",
        [y if rank == 0 else y - bias for rank, y in enumerate(whole)],
    )
    yield from _not_shared(run, ("dx", "dw"))
    for name in ("dx", "dw"):
        told = f"{name} is {n} times the right one: every rank has all of dy, so nothing is to be summed in backward"
        yield name, told, [n * g for g in _of(run, name)]
    yield (
        "db",
        f"db is {n} times the right one: dy is the same on every rank, so each has the whole gradient already",
        [n * g for g in _of(run, "db")],
    )
    yield "db", f"db was divided by {n}: the bias is on every rank, and each has its whole gradient", _over(run, "db")


def _not_shared(run: Run, names: Sequence[str]) -> Iterator[tuple[str, str, Sequence[torch.Tensor]]]:
    """Gradients of shards that somebody sums, as data parallel training does."""
    for name in names:
        why = "it belongs to this rank's shard, of which no other rank has a copy: nothing is to be added"
        yield name, f"{name} was summed over the ranks: {why}", _sums(run, name)
        summed = [total / run.case.world for total in _sums(run, name)]
        yield name, f"{name} was averaged over the ranks: {why}", summed


def _sums(run: Run, name: str) -> list[torch.Tensor]:
    parts = _of(run, name)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return [total] * run.case.world


def _over(run: Run, name: str) -> list[torch.Tensor]:
    return [part / run.case.world for part in _of(run, name)]


# ------------------------------------------------------------------------------------------------- MLP


@first_wrong_part
def mlp(run: Run) -> Iterator[tuple[str, str, Sequence[torch.Tensor]]]:
    """Which of the two communications is missing, or at the wrong place."""
    import torch
    import torch.nn.functional as F

    n = run.case.world
    inputs = [arguments[0] for arguments in run.case.arguments]
    dy = run.case.arguments[0][2]
    bias, whole = inputs[0]["down_bias"], _of(run, "y")

    def hidden(one: Any) -> torch.Tensor:
        return F.gelu(F.linear(one["x"], one["up"], one["up_bias"]))

    terms = [F.linear(hidden(one), one["down"]) for one in inputs]
    yield (
        "y",
        f"y has the bias {n} times: F.linear added it on every rank before the sum; add it after sum_out",
        [y + (n - 1) * bias for y in whole],
    )
    yield "y", "y lacks the bias of the second layer: it is added once, after sum_out", [y - bias for y in whole]
    yield (
        "y",
        "y is this rank's term only: the second layer is cut by inputs, so sum_out adds up the terms",
        [term + bias for term in terms],
    )
    yield "y", "y is this rank's term only: sum_out adds up the terms, and then comes the bias", terms
    before = torch.stack([F.linear(one["x"], one["up"], one["up_bias"]) for one in inputs]).sum(0)
    yield (
        "y",
        "features of different ranks were added up before GELU: between the layers each rank keeps its own",
        [sum((F.linear(F.gelu(before), one["down"]) for one in inputs), torch.zeros_like(terms[0])) + bias] * n,
    )
    added = torch.stack([hidden(one) for one in inputs]).sum(0)
    yield (
        "y",
        "features of different ranks were added up after GELU: between the layers each rank keeps its own",
        [sum((F.linear(added, one["down"]) for one in inputs), torch.zeros_like(terms[0])) + bias] * n,
    )
    yield (
        "y",
        f"y was divided by {n}: its terms are summed, not averaged",
        [(y - bias) / n + bias for y in whole],
    )
    bare = [F.linear(F.gelu(F.linear(one["x"], one["up"])), one["down"]) for one in inputs]
    yield (
        "y",
        "y lacks the bias of the first layer: F.linear takes this rank's shard of it",
        [torch.stack(bare).sum(0) + bias] * n,
    )
    linear = [F.linear(F.linear(one["x"], one["up"], one["up_bias"]), one["down"]) for one in inputs]
    yield "y", "GELU is missing between the two layers", [torch.stack(linear).sum(0) + bias] * n
    twice = [dict(one, x=one["x"] * n) for one in inputs]
    again = [F.linear(hidden(one), one["down"]) for one in twice]
    swapped = "copy_in and sum_out are swapped: on the way in x is the same everywhere, so summing makes it n times x"
    yield "y", swapped, [term + bias for term in again]
    yield (
        "y",
        "x was summed on the way in, and is the same everywhere, so it became n times as large: it enters by copy_in",
        [torch.stack(again).sum(0) + bias] * n,
    )
    own = []
    for one in inputs:
        x = one["x"].clone().requires_grad_()
        (F.linear(hidden({**one, "x": x}), one["down"]) * dy).sum().backward()
        own.append(x.grad)
    yield (
        "dx",
        "dx comes from this rank's features only: x enters the layers by copy_in, which sums its gradients in backward",
        own,
    )
    back = torch.stack([dy @ one["down"] for one in inputs]).sum(0)
    mixed = []
    for one in inputs:
        x = one["x"].clone().requires_grad_()
        (hidden({**one, "x": x}) * back).sum().backward()
        mixed.append(x.grad)
    yield (
        "dx",
        "copy_in stands between the layers: the features there are this rank's own, and it added up gradients of"
        " different ones; it belongs where x enters",
        mixed,
    )
    yield "dx", f"dx is {n} times the right one: its terms were summed twice", [x * n for x in _of(run, "dx")]
    for name in ("dup", "dup_bias", "ddown"):
        yield (
            name,
            (
                f"{name} is {n} times the right one: copy_in stands behind the sum, or twice, and adds up a"
                " gradient that is the same on every rank"
            ),
            [g * n for g in _of(run, name)],
        )
    yield from _not_shared(run, ("dup", "dup_bias", "ddown"))
    yield (
        "ddown_bias",
        f"ddown_bias is {n} times the right one: y's gradient is the same on every rank already",
        [g * n for g in _of(run, "ddown_bias")],
    )


# ------------------------------------------------------------------------------------------- attention


@first_wrong_part
def heads(run: Run) -> Iterator[tuple[str, str, Sequence[torch.Tensor]]]:
    """Which rows of qkv, which columns of out, and what is summed."""
    import torch
    import torch.nn.functional as F

    n, facts = run.case.world, run.case.facts
    x, qkv, out = (facts["whole"][name] for name in ("x", "qkv", "out"))
    H, whole = facts["H"], _of(run, "y")

    def apart(y: torch.Tensor, count: int) -> Any:
        return y.unflatten(-1, (count, -1)).transpose(1, 2)

    def together(y: torch.Tensor) -> torch.Tensor:
        return y.transpose(1, 2).flatten(2)

    def local(
        rows: Sequence[torch.Tensor], columns: torch.Tensor, count: int, apart: Any = apart, together: Any = together
    ) -> torch.Tensor:
        q, k, v = (apart(F.linear(x, w), count) for w in rows)
        y: torch.Tensor = together(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return F.linear(y, columns)

    def total(terms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [torch.stack(list(terms)).sum(0)] * n

    thirds = [third.chunk(n) for third in qkv.chunk(3)]
    mine = [[third[r] for third in thirds] for r in range(n)]
    columns = out.chunk(n, 1)
    yield (
        "y",
        "qkv was cut as one block: its rows are all of q, then all of k, then all of v, and a rank takes its heads'"
        " rows of each",
        total([local(qkv.chunk(n)[r].chunk(3), columns[r], H // n) for r in range(n)]),
    )
    yield (
        "y",
        "y is that of this rank's heads only: out is cut by inputs, so sum_out adds up the terms",
        [local(mine[r], columns[r], H // n) for r in range(n)],
    )
    yield (
        "y",
        f"y is {n} times the right one: every rank computed all heads, and then they were summed",
        [y * n for y in whole],
    )
    yield "y", "nothing hides what comes later: is_causal=True", [attend(x, qkv, out, H, causal=False)] * n

    B, T, _ = x.shape
    if H > n:
        yield (
            "y",
            "positions and channels were mixed on the way in: (B, T, C/n) becomes heads by"
            " .unflatten(-1, (heads // n, -1)).transpose(1, 2), not by a reshape to (B, heads // n, T, ...)",
            total([local(mine[r], columns[r], H // n, lambda y, count: y.reshape(B, count, T, -1)) for r in range(n)]),
        )
        yield (
            "y",
            "heads were not moved back behind the positions: .transpose(1, 2) before .flatten(2)",
            total([local(mine[r], columns[r], H // n, together=lambda y: y.reshape(B, T, -1)) for r in range(n)]),
        )
    yield (
        "y",
        "two of q, k and v are exchanged: qkv has all rows of q, then all of k, then all of v",
        total([local([mine[r][0], mine[r][2], mine[r][1]], columns[r], H // n) for r in range(n)]),
    )

    def across(r: int) -> torch.Tensor:
        q, k, v = (F.linear(x, w).unflatten(-1, (H // n, -1)) for w in mine[r])
        return F.linear(F.scaled_dot_product_attention(q, k, v, is_causal=True).flatten(2), columns[r])

    yield (
        "y",
        "heads look at each other, where positions should: attention takes (B, H/n, T, D), so .transpose(1, 2)",
        total([across(r) for r in range(n)]),
    )
    if (H // n * x.shape[-1] // H) % H == 0:
        yield (
            "y",
            f"heads were cut into {n} pieces: a rank has heads / n of them, each of D channels",
            total([local(mine[r], columns[r], H) for r in range(n)]),
        )
    yield (
        "y",
        "out was cut by rows, which are its outputs: it reads this rank's heads, so its inputs are cut, dimension 1",
        total([local(mine[r], out.chunk(n)[r].T, H // n) for r in range(n)]),
    )
    yield (
        "y",
        "out is cut for another rank's heads: columns r C/n to (r + 1) C/n read the heads of rank r",
        total([local(mine[r], columns[0], H // n) for r in range(n)]),
    )

    def gradient(r: int) -> torch.Tensor:
        given = x.clone().requires_grad_()
        q, k, v = (F.linear(given, w).unflatten(-1, (H // n, -1)).transpose(1, 2) for w in mine[r])
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        (F.linear(y, columns[r]) * facts["dy"]).sum().backward()
        found: torch.Tensor | None = given.grad
        assert found is not None
        return found

    yield (
        "dx",
        "dx comes from this rank's heads only: x enters by copy_in, which sums its gradients in backward",
        [gradient(r) for r in range(n)],
    )
    yield "dx", f"dx is {n} times the right one: its terms were summed twice", [g * n for g in _of(run, "dx")]
    wholes = [sum(_of(run, "dqkv"), torch.zeros_like(qkv))] * n
    yield "dqkv", "every rank has a gradient for all heads: each computes heads / n of them", wholes
    turned = _of(run, "dqkv")
    yield "dqkv", "the ranks have each other's heads: those of rank 0 come first", turned[::-1]
    told = "rank r has every n-th head: it computes heads r H/n to (r + 1) H/n, side by side"
    yield "dqkv", told, _interleaved(run, wholes[0])


def _interleaved(run: Run, whole: torch.Tensor) -> list[torch.Tensor]:
    """The gradient of qkv where rank r has heads r, r + n and so on."""
    n, H = run.case.world, run.case.facts["H"]
    by_head = whole.view(3, H, -1)
    found = []
    for rank in range(n):
        kept = by_head * 0
        kept[:, rank::n] = by_head[:, rank::n]
        found.append(kept.view_as(whole))
    return found


# ------------------------------------------------------------------------------------------- dropout


def seeds(run: Run) -> str | None:
    """A rule: which elements went, on each rank and in each call."""
    import torch

    noted = [arguments[-1] for arguments in run.after]
    if not all("other part" in one for one in noted):
        return None
    for rank, one in enumerate(noted):
        if not torch.equal(one["same"], one["again"]):
            return (
                f"rank {rank} dropped others when it was called again with the same seed: the generator begins anew in"
                " each call, from the seed"
            )
    if any(one["reseeded"] for one in noted):
        return (
            "torch's own generator is not where it was: whatever is drawn after a dropout would repeat itself too; take"
            " a generator for this, torch.Generator(x.device).manual_seed(...), and draw with generator=generator"
        )
    for rank, one in enumerate(noted):
        for call, where in {"same": "", "part": " of its own part"}.items():
            if torch.equal(one[call], one["other" if call == "same" else "other part"]):
                return f"rank {rank} dropped the same elements{where} with another seed: the seed has to count"
        share = 1 - float(one["same"].float().mean())
        if abs(share - P) > 6 * (P * (1 - P) / one["same"].numel()) ** 0.5:  # one in 500 million falls out by chance
            return f"rank {rank} dropped {share:.0%} where p = {P:.0%} is asked for: an element stays where rand >= p"
    for rank, one in enumerate(noted[1:], 1):
        if not torch.equal(one["same"], noted[0]["same"]):
            return (
                f"rank 0 and rank {rank} dropped different elements of the same x: from here on they compute with"
                " different x, and no sum is right; with cut=False the seed is the same on every rank"
            )
    for rank, one in enumerate(noted):
        for other in range(rank):
            if torch.equal(one["part"], noted[other]["part"]):
                return (
                    f"rank {other} and rank {rank} dropped the same elements, each of its own part: the seed is shared,"
                    " so one pattern repeats along the sequence; with cut=True the rank is in the seed"
                )
    return None


@first_wrong_part
def scaled(run: Run) -> Iterator[tuple[str, str, Sequence[torch.Tensor]]]:
    """By what the elements that stay are divided."""
    n, x = run.case.world, [arguments[:2] for arguments in run.case.arguments]
    where = {"same": 0, "part": 1}
    for name, index in where.items():
        bare = [one[index] for one in x]
        kept = [_left(run, rank, name, bare[rank]) for rank in range(n)]
        yield name, "what stays is as it was: it is divided by 1 - p, so that the mean stays", kept
        yield (
            name,
            "what stays was divided by p: a share of 1 - p stays, so it is divided by that",
            [_left(run, rank, name, bare[rank] / P) for rank in range(n)],
        )


def _left(run: Run, rank: int, name: str, value: torch.Tensor) -> torch.Tensor:
    """As the drive returns it: the right value where an element went."""
    import torch

    return torch.where(run.after[rank][-1][name], value, run.case.facts["right"][rank][name])


# ------------------------------------------------------------------------------------------- sequence regions


@first_wrong_part
def sequence(run: Run) -> Iterator[tuple[str, str, Sequence[torch.Tensor]]]:
    """What is cut by position, and whose gradients are sums."""
    import torch
    import torch.nn.functional as F

    n, facts = run.case.world, run.case.facts
    whole = facts["whole"]
    normed = F.layer_norm(whole["x"], whole["gain"].shape, whole["gain"])

    def term(r: int, given: torch.Tensor = normed) -> torch.Tensor:
        up, down = whole["up"].chunk(n)[r], whole["down"].chunk(n, 1)[r]
        return F.linear(F.gelu(F.linear(given, up)), down)

    yield (
        "y",
        "y is this rank's term of its positions, without those of the others: scatter_out sums them",
        [term(r).chunk(n)[r] for r in range(n)],
    )
    yield "y", "the norm is missing", list(torch.stack([term(r, whole["x"]) for r in range(n)]).sum(0).chunk(n))
    bare = F.layer_norm(whole["x"], whole["gain"].shape)
    yield "y", "the gain is missing in the norm", list(torch.stack([term(r, bare) for r in range(n)]).sum(0).chunk(n))
    full = torch.stack([term(r) for r in range(n)]).sum(0)
    summed = F.layer_norm(whole["x"], whole["gain"].shape, whole["gain"] * n)
    yield (
        "y",
        f"the gain became {n} times as large: it is the same on every rank, so it enters by copy_in, not by sum_out",
        list(torch.stack([term(r, summed) for r in range(n)]).sum(0).chunk(n)),
    )
    yield "y", "every rank has rank 0's positions: rank r returns those that it was given", [full.chunk(n)[0]] * n
    yield "y", f"y was divided by {n}: its terms are summed, not averaged", [y / n for y in full.chunk(n)]
    for name, what in {"dx": "x", "dgain": "the gain"}.items():
        yield (
            name,
            f"{name} is {n} times the right one: gather_in sums the gradients of {what} in its backward, and they were"
            " summed once more",
            [g * n for g in _of(run, name)],
        )
    yield (
        "dgain",
        "dgain comes from this rank's positions only: every rank used the gain, on other positions, so copy_in has to"
        " sum its gradients",
        facts["gains"],
    )
    yield from _not_shared(run, ("dup", "ddown"))


@on_each_rank
def no_large_sum(run: Run, part: RankTrace) -> str | None:
    """A rule: nothing of the size of activations is all-reduced."""
    enough = run.case.facts["C"] * FLOAT
    large = next((one for one in collectives(part) if one.name == "all_reduce" and one.payload > enough), None)
    if large is None:
        return None
    return (
        f"rank {part.rank} all-reduced {size(large.payload)}, from {line(large, run)}: it keeps one of {run.case.world}"
        " parts of that sum, so a reduce-scatter is enough, with an all-gather on the way back: half the bytes each way"
    )
