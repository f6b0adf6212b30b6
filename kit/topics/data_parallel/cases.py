"""What labs 03a and 03b try functions on: models of random sizes, and for every rank its own numbers in them."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from random import Random
from typing import Any

from kit.grade import inputs
from kit.grade.exercise import Case

FLOAT = 4  # bytes of a float32
FROZEN, BUFFER = "scale", "mask"  # as in `drives`

State = dict[str, Any]  # name -> tensor


def _shapes(random: Random) -> dict[str, tuple[int, ...]]:
    """A matrix that two modules share, a frozen vector, and others; in the order they are made."""
    a, b, c, d, e = (random.randint(1, 6) for _ in range(5))
    return {"embed": (a, 2), FROZEN: (2,), "hidden": (b, c), "bias": (c,), "norm": (d,), "out": (e,)}


def _alike(random: Random) -> dict[str, tuple[int, ...]]:
    """Four vectors of one size: whoever adds one to another is not told so by its shape."""
    return dict.fromkeys(("embed", "hidden", "bias", "out"), (random.randint(2, 9),))


def _drawn(shapes: dict[str, tuple[int, ...]], random: Random) -> State:
    return {name: inputs.tensor(prod(shape), random).view(shape) for name, shape in shapes.items()}


def _trained(state: State) -> list[str]:
    return [name for name in state if name not in (FROZEN, BUFFER)]


def _flat(state: State, names: list[str]) -> Any:
    import torch

    return torch.cat([state[name].flatten() for name in names])


def _sizes(state: State, names: list[str]) -> list[tuple[str, int]]:
    return [(name, state[name].numel()) for name in names]


def start_cases(world: int, random: Random) -> Iterator[Case]:
    """The last rank is the source first: rank 0 as the source would hide a forgotten argument."""
    from kit.topics.data_parallel import drives

    for source in (world - 1, 0):
        shapes = {**_shapes(random), BUFFER: (3,)}
        states = [_drawn(shapes, random) for _ in range(world)]
        names = list(shapes)  # parameters in the order they are made, then buffers
        facts: dict[str, Any] = {
            "source": source,
            "parts": _sizes(states[0], names),
            "own": [_flat(state, names) for state in states],
        }
        yield Case(
            world, tuple((state, source, {}) for state in states), len(facts["own"][0]), facts, drives.share_state
        )


def average_cases(world: int, random: Random) -> Iterator[Case]:
    """Then one rank lacks a gradient. All sizes are equal there, so that a rank that skips it is missed, at the end."""
    from kit.topics.data_parallel import drives

    size = random.randint(2, 9)
    equal: dict[str, tuple[int, ...]] = dict.fromkeys(("embed", "hidden", "bias", "norm", "out"), (size,))
    for shapes, lacking in ((_shapes(random), None), (equal, random.randrange(world))):
        states = [_drawn(shapes, random) for _ in range(world)]
        names = _trained(states[0])
        gradients = [_drawn({name: shapes[name] for name in names}, random) for _ in range(world)]
        own = [_flat(gradient, names) for gradient in gradients]
        if lacking is not None:
            left_out = gradients[lacking].pop("hidden")
            own[lacking][shapes["embed"][0] :][: left_out.numel()] = 0
        arguments: Any = tuple((state, gradient, {}) for state, gradient in zip(states, gradients, strict=True))
        facts = {
            "parts": _sizes(states[0], names),
            "own": own,
            "lacking": lacking,  # the rank that has no gradient of 'hidden'
            "state": [_flat(state, list(shapes)) for state in states],
            "state parts": _sizes(states[0], list(shapes)),
        }
        yield Case(world, arguments, len(own[0]), facts, drives.average)


STEPS = 2  # averaged passes, so that what the first leaves behind meets the second


def _passes(
    world: int, random: Random, shapes: dict[str, tuple[int, ...]], each: int, given: Any, mixed: bool = False
) -> Case:
    """`each` backward passes make a step. mixed: on odd ranks backward takes the parameters the other way round."""
    import torch

    from kit.topics.data_parallel import drives

    states = [_drawn(shapes, random) for _ in range(world)]
    names = _trained(states[0])
    passes = [[_drawn({name: shapes[name] for name in names}, random) for _ in range(STEPS * each)] for _ in states]

    def summed(rank: int, count: int) -> Any:
        """What the first `count` micro-batches of each step add up to on this rank, step after step: (STEPS P,)."""
        every = torch.stack([_flat(gradients, names) for gradients in passes[rank]])  # (STEPS each, P)
        return every.view(STEPS, each, -1)[:, :count].sum(1).flatten()  # (STEPS P,)

    facts = {
        "parts": _sizes(states[0], names) * STEPS,
        "own": [summed(rank, each) for rank in range(world)],
        "own before": [summed(rank, each - 1) for rank in range(world)],
        "state": [_flat(state, list(shapes)) for state in states],
        "state parts": _sizes(states[0], list(shapes)),
        "each": each,
        "given": given,
        "mixed": mixed,
    }
    turned = [
        [dict(reversed(one.items())) if mixed and rank % 2 else one for one in passes[rank]] for rank in range(world)
    ]
    arguments: Any = tuple((states[rank], turned[rank], each, given, {}) for rank in range(world))
    return Case(world, arguments, len(facts["own"][0]) // STEPS, facts, drives.attach)


def hook_cases(world: int, random: Random) -> Iterator[Case]:
    """One micro-batch and several; then another order of arrival on every other rank, where all sizes agree."""
    for micro_batches in (1, 3):
        yield _passes(world, random, _shapes(random), micro_batches, micro_batches)
    yield _passes(world, random, _alike(random), 1, 1, mixed=True)


def bucket_cases(world: int, random: Random) -> Iterator[Case]:
    """Several buckets and a short last one; one for all; then another order of arrival on every other rank."""
    shapes = {"embed": (1, 2), "hidden": (random.randint(2, 4), 4), "bias": (5,), "norm": (4,), "out": (6,)}
    yield _passes(world, random, shapes, 1, 44)
    yield _passes(world, random, _shapes(random), 1, 4000)
    equal = _alike(random)
    yield _passes(world, random, equal, 1, 2 * equal["embed"][0] * FLOAT, mixed=True)


def buckets(case: Case) -> int:
    """How many buckets the parameters fill, the last ones first, in one step."""
    count, room = 0, 0
    for _, size in reversed(case.facts["parts"][: len(case.facts["parts"]) // STEPS]):
        if count == 0 or size * FLOAT > room:
            count, room = count + 1, max(case.facts["given"], size * FLOAT)
        room -= size * FLOAT
    return count
