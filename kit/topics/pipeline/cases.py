"""What lab 06a's functions are tried on, and the right answers, computed in one process."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any

from kit.grade import inputs
from kit.grade.exercise import Case

if TYPE_CHECKING:
    import torch

WIDTH = 4
FLOAT = 4  # bytes of a float32


def sizes(world: int, random: Random) -> Iterator[int]:
    """Numbers of micro-batches: more than ranks, fewer, and many."""
    yield world + random.randint(1, 3)
    yield random.randint(1, world - 1)
    yield 2 * world + random.randint(1, 4)


def row_cases(world: int, random: Random) -> Iterator[Case]:
    for m in islice(sizes(world, random), 2):  # a row of many is the one of more than ranks, with a longer middle
        yield Case(world, tuple((m, {}) for _ in range(world)), m, {}, _drive("by_rows"))


def row_gradients(case: Case) -> list[Any]:
    """Of the stage on each rank, on the last one behind the losses."""
    from kit.topics.pipeline.drives import flat, serial

    return flat(*serial(case.world, case.size, WIDTH), case.world)


def step_cases(world: int, random: Random) -> Iterator[Case]:
    """A stage of its own on each rank; batches on all of them, though only two look at them."""
    for m in sizes(world, random):
        arguments: Any = tuple((rank, world, m, {}) for rank in range(world))
        yield Case(world, arguments, m, {}, _drive("by_hand"))


def step_gradients(case: Case) -> list[Any]:
    from kit.topics.pipeline.drives import flat, serial

    _, gradients = serial(case.world, case.size, WIDTH)
    return flat({}, gradients, case.world)


def tied_cases(world: int, random: Random) -> Iterator[Case]:
    """Gradients of one matrix on the first rank and the last, nothing in between."""
    for size in inputs.sizes(world, random):
        ends = {rank: inputs.tensor(size, random) for rank in (0, world - 1)}
        yield Case(world, tuple((ends.get(rank),) for rank in range(world)), size)


def cut_cases(world: int, random: Random) -> Iterator[Case]:
    """Milliseconds of each layer: a head on top; drawn ones; one large layer at the begin; as many layers as ranks."""
    drawn = [random.randint(1, 9) for _ in range(3 * world + 1)]
    for layers in (
        [*[2] * (3 * world + 1), 9],
        drawn,
        [9, *[2] * 2 * world],
        [random.randint(1, 9) for _ in range(world)],
    ):
        yield Case(world, ((layers, world, {}),) * world, len(layers), {"layers": layers}, _drive("by_cut"))


def cut_layers(case: Case) -> list[Any]:
    return [case.size] * case.world


def tied_gradients(case: Case) -> list[Any]:
    first, last = case.arguments[0][0], case.arguments[-1][0]
    total: torch.Tensor = first + last
    return [total if rank in (0, case.world - 1) else None for rank in range(case.world)]


def _drive(name: str) -> Any:
    from kit.topics.pipeline import drives

    return getattr(drives, name)
