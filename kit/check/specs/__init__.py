"""The exercises of each lab."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from kit.check.spec import Spec

LABS = {  # lab: the module here that holds its exercises
    "00_ranks": "ranks",
    "01_collectives": "collectives",
    "03_data_parallel": "data_parallel",
    "04_zero": "zero",
}


@cache
def known() -> dict[str, Spec]:
    """Every exercise by its id, in the order of the labs."""
    return {spec.id: spec for lab in LABS for spec in of_lab(lab)}


def of_lab(lab: str) -> tuple[Spec, ...]:
    """The exercises of a lab, in the order a learner meets them."""
    return import_module(f"kit.check.specs.{LABS[lab]}").SPECS


def find(identity: str) -> Spec:
    """The exercise with this id. Raises ValueError, with the ids there are, for one no lab has."""
    if identity not in known():
        from kit.check.exercise import unknown

        raise ValueError(unknown(identity))
    return known()[identity]


def lab_named(lab: str | int) -> str:
    """A lab's full name from its number or name: 1, '1', '01', 'collectives' and '01_collectives' are one."""
    text = str(lab).removesuffix(".ipynb").lower()
    for name in LABS:
        number, _, topic = name.partition("_")
        if text in (name, topic, number) or (text.isdigit() and int(text) == int(number)):
            return name
    raise ValueError(f"no lab {lab!r} has exercises; these have: {', '.join(LABS)}")
