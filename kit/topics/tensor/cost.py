"""What tensor parallelism sends, and which shard lies where.

Letters: M tokens (samples times positions), C channels, F features inside the MLP, V vocabulary, n ranks of the group.
`Call.elements` counts the whole buffer of a collective; bytes are those a ring sends from one rank, (n-1)/n of the
buffer, twice that for an all-reduce. ValueError for what makes no sense.

S   M. Shoeybi and others, Megatron-LM (2019), section 3: one all-reduce forward and one backward in each of attention
    and MLP
K   V. Korthikanti and others, Reducing activation recomputation in large transformer models (2022), section 4.2.2:
    all-gather and reduce-scatter in their place, the same bytes
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Phase = Literal["forward", "backward"]
HALVES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}  # an all-reduce is both of the others


@dataclass(frozen=True, slots=True)
class Call:
    """One collective. elements: of the whole buffer."""

    name: str
    elements: int
    phase: Phase
    why: str


def column(tokens: int, inputs: int, outputs: int, sequence: bool = False) -> tuple[Call, ...]:
    """A linear layer cut by outputs, with the entry into its region (S, f; K, g)."""
    _at_least_one(tokens=tokens, inputs=inputs, outputs=outputs)
    size = tokens * inputs
    gathers = (Call("all_gather", size, "forward", "every rank needs all positions"),) if sequence else ()
    sums = "reduce_scatter" if sequence else "all_reduce"
    return (*gathers, Call(sums, size, "backward", "every rank's outputs depend on the same x"))


def row(tokens: int, inputs: int, outputs: int, sequence: bool = False) -> tuple[Call, ...]:
    """A linear layer cut by inputs, with the exit from its region (S, g; K, g bar)."""
    _at_least_one(tokens=tokens, inputs=inputs, outputs=outputs)
    size = tokens * outputs
    sums = Call("reduce_scatter" if sequence else "all_reduce", size, "forward", "every rank has one term of the sum")
    if not sequence:
        return (sums,)
    return sums, Call("all_gather", size, "backward", "every rank needs the gradient of all positions")


def mlp(tokens: int, channels: int, sequence: bool = False) -> tuple[Call, ...]:
    """Column up to 4C, row down again; what the norm before it sends is in `block`."""
    up, down = column(tokens, channels, 4 * channels, sequence), row(tokens, 4 * channels, channels, sequence)
    return _in_order(up, down)


def attention(tokens: int, channels: int, sequence: bool = False) -> tuple[Call, ...]:
    """Queries, keys and values by column, with one entry; the output by row."""
    return _in_order(column(tokens, channels, 3 * channels, sequence), row(tokens, channels, channels, sequence))


def block(tokens: int, channels: int, sequence: bool = False, bias: bool = True) -> tuple[Call, ...]:
    """Attention and MLP, each with its norm.

    With regions cut by position, vectors that every rank holds (gains, and biases of norms and row linears) have their
    gradients summed; here one by one, C elements each.
    """
    vectors = (6 if bias else 2) if sequence else 0
    sums = (Call("all_reduce", channels, "backward", "each rank has seen other positions"),) * vectors
    return _in_order(attention(tokens, channels, sequence), (*mlp(tokens, channels, sequence), *sums))


def gpt(
    tokens: int,
    channels: int,
    layers: int,
    *,
    block_size: int = 0,
    sequence: bool = False,
    bias: bool = True,
) -> tuple[Call, ...]:
    """A GPT whose embedding, head and loss are cut by vocabulary: forward and backward of one batch, in any order.

    The loss sums three numbers for each token: the largest logit, the sum of exponentials, the target's logit.
    block_size: rows of the position embedding, whose gradients are summed with regions cut by position.
    """
    numbers = ("the largest logit", "the sum of exponentials", "the target's logit")
    found = [
        *row(tokens, 1, channels, sequence),  # the embedding: one term of the sum on each rank, all but one are 0
        *block(tokens, channels, sequence, bias) * layers,
        *column(tokens, channels, 1, sequence),  # the head
        *(Call("all_reduce", tokens, "forward", why) for why in numbers),
    ]
    if sequence:
        vectors = [block_size * channels, *[channels] * (2 if bias else 1)]  # positions, and the last norm
        found += [Call("all_reduce", size, "backward", "each rank has seen other positions") for size in vectors]
    return tuple(found)


def bytes_sent(calls: Iterable[Call], ranks: int, element: int = 4) -> float:
    """Bytes that one of n ranks sends for these collectives as rings."""
    _at_least_one(ranks=ranks, element=element)
    return sum(HALVES[call.name] * call.elements for call in calls) * element * (ranks - 1) / ranks


def stage_boundary_bytes(tokens: int, channels: int, element: int = 4) -> int:
    """Bytes that a pipeline sends over the same link instead: an activation forward, and as much backward."""
    _at_least_one(tokens=tokens, channels=channels, element=element)
    return tokens * channels * element


def spans(size: int, ranks: int) -> tuple[slice, ...]:
    """Which of `size` rows or columns lie on each rank, by rank."""
    _at_least_one(size=size, ranks=ranks)
    if size % ranks:
        down, up = size // ranks * ranks, -(-size // ranks) * ranks
        raise ValueError(f"{ranks} ranks cannot share {size} evenly: take {f'{down} or ' if down else ''}{up}")
    width = size // ranks
    return tuple(slice(rank * width, (rank + 1) * width) for rank in range(ranks))


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of one rank. replicated: its key and value heads are on other ranks too."""

    queries: range
    keys: range
    replicated: bool


def heads_of(heads: int, ranks: int, rank: int, key_heads: int | None = None) -> Heads:
    """Which of H heads a rank computes, and which of K heads of keys and values (None: H) they look at.

    Fewer key heads than ranks are held by every rank that needs them. ValueError where heads would have to be cut.
    """
    kept = heads if key_heads is None else key_heads
    _at_least_one(heads=heads, ranks=ranks, key_heads=kept)
    if not 0 <= rank < ranks:
        raise ValueError(f"rank {rank} is none of {ranks} ranks: they go from 0 to {ranks - 1}")
    if heads % kept:
        raise ValueError(
            f"{heads} heads cannot share {kept} of keys and values evenly: key_heads is a divisor of heads"
        )
    if heads % ranks:
        raise ValueError(f"{ranks} ranks cannot share {heads} heads: a head is not cut; take ranks that divide {heads}")
    if kept % ranks and ranks % kept:
        raise ValueError(
            f"{ranks} ranks cannot share {kept} heads of keys and values, nor hold copies of them evenly: one number"
            " divides the other"
        )
    each = heads // ranks
    queries = range(rank * each, (rank + 1) * each)
    per_key = heads // kept
    return Heads(queries, range(queries[0] // per_key, queries[-1] // per_key + 1), replicated=kept < ranks)


def _in_order(first: tuple[Call, ...], second: tuple[Call, ...]) -> tuple[Call, ...]:
    """Two layers, one behind the other: forward in order, backward the other way round."""
    forward = [call for layer in (first, second) for call in layer if call.phase == "forward"]
    return (*forward, *(call for layer in (second, first) for call in layer if call.phase == "backward"))


def _at_least_one(**sizes: int) -> None:
    for name, size in sizes.items():
        if not size >= 1:
            raise ValueError(f"{name} is {size}: give 1 or more")
