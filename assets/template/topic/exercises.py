"""Lab 00: the mean over ranks."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from kit.grade import Case, Exercise, Mistake, inputs
from kit.grade.diagnose import input_changed, not_divided, nothing_returned
from kit.grade.traffic import calls, payload_at_most

FLOAT = 4  # bytes of a float32


def cases(world: int, random: Random) -> Iterator[Case]:
    """Another tensor on each rank, of several sizes."""
    for size in inputs.sizes(world, random):
        yield Case(world, tuple((x,) for x in inputs.tensors(world, size, random)), size)


def mean(case: Case) -> list[Any]:
    """The right result of every rank, computed in one process."""
    return [sum(x for (x,) in case.arguments) / case.world] * case.world


MEAN = Exercise(
    id="my-topic-mean",
    lab="00_my_topic",
    function="mean_over_ranks",
    size="C",
    cases=cases,
    oracle=mean,
    hints=(
        "Every rank needs what all others have. Which collective brings it together?",
        "`dist.all_reduce` adds up, in place; the mean is the sum over the number of ranks.",
        "`total = x.clone()`, `dist.all_reduce(total)`, and return `total / dist.get_world_size()`.",
    ),
    before=(input_changed,),
    diagnoses=(nothing_returned, not_divided),
    traffic=(
        calls(("all_reduce",), "one sum is enough"),
        payload_at_most(lambda case: case.size * FLOAT, "x goes once"),
    ),
    advice=((r"waits in|finished without", "Every rank has to call the collective."),),
    mistakes=(
        Mistake("sum, not mean", "values", ("was not divided",), {" / dist.get_world_size(group)": ""}),
        Mistake("sums into the input", "values", ("changed its input in place",), {"x.clone()": "x"}),
        Mistake("returns nothing", "values", ("returned nothing",), {"return total": "mean = total"}),
    ),
    praise="one all-reduce",
)

EXERCISES = (MEAN,)
