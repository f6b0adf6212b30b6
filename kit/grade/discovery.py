"""Which labs there are and what is to be done in them: found by being there.

A lab is a notebook `NN_topic.ipynb` whose topic has exercises: a package `kit.topics.<topic>` with a module `exercises`
that holds EXERCISES. `kit.resources` knows in which folders both lie, Lockstep's own or an instructor's.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from kit import resources

if TYPE_CHECKING:
    from kit.grade.exercise import Exercise


@dataclass(frozen=True)
class Lab:
    """A lab with exercises."""

    name: str  # '01_collectives'
    notebook: Path
    solutions: Path

    @property
    def topic(self) -> str:
        """The name of its package in `kit.topics`."""
        return self.name.partition("_")[2]

    @property
    def exercises(self) -> tuple[Exercise, ...]:
        """In the order a learner meets them."""
        found: tuple[Exercise, ...] = import_module(f"kit.topics.{self.topic}.exercises").EXERCISES
        return found


@cache
def labs() -> dict[str, Lab]:
    """Every lab by its name, by number. Raises ValueError for an own one with the topic of a shipped one."""
    found: dict[str, Lab] = {}
    for folder in (resources.shipped(), *resources.own()):
        for notebook in folder.notebooks():
            lab = Lab(notebook.stem, notebook, folder.labs / "solutions" / f"{notebook.stem}.py")
            if (folder.topics / lab.topic / "exercises.py").is_file():
                twin = next((other for other in found.values() if other.topic == lab.topic), lab)
                if twin is not lab and twin.notebook.parent == resources.labs():
                    raise ValueError(
                        f"{notebook} has the topic of lab {twin.name}: give it, and its folder, another name"
                    )
                found.setdefault(twin.name, lab)
    return dict(sorted(found.items()))


@cache
def exercises() -> dict[str, Exercise]:
    """Every exercise by its id, in the order of the labs. Raises ValueError for an id that two of them have."""
    found: dict[str, Exercise] = {}
    for lab in labs().values():
        for exercise in lab.exercises:
            if exercise.id in found:
                raise ValueError(
                    f"lab {lab.name} has an exercise {exercise.id!r}, and lab {found[exercise.id].lab} has one too:"
                    " give it another id"
                )
            found[exercise.id] = exercise
    return found


def find(identity: str) -> Exercise:
    """The exercise with this id. Raises ValueError for one no lab has, with the ids of the lab most likely meant."""
    known = exercises()
    if identity in known:
        return known[identity]
    near = difflib.get_close_matches(identity, known, n=1, cutoff=0.5)
    meant = [labs()[known[near[0]].lab]] if near else labs().values()
    lists = "; ".join(f"lab {lab.name} has {', '.join(each.id for each in lab.exercises)}" for lab in meant)
    raise ValueError(f"there is no exercise {identity!r}: {lists}")
