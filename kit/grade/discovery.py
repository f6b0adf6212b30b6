"""Which labs there are and what is to be done in them: found by being there.

A lab is a notebook `NN_topic.ipynb` whose topic has exercises: a package `kit.topics.<topic>` with a module `exercises`
that holds EXERCISES. A topic may have several notebooks, `NNa_topic.ipynb` and `NNb_topic.ipynb`: each exercise says to
which it belongs. `kit.resources` knows in which folders all this lies, Lockstep's own or an instructor's.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kit import resources

if TYPE_CHECKING:
    from kit.grade.exercise import Exercise
    from kit.grade.question import Answer


@dataclass(frozen=True)
class Lab:
    """A lab with exercises."""

    name: str  # '01a_collectives'
    notebook: Path
    solutions: Path

    @property
    def topic(self) -> str:
        """The name of its package in `kit.topics`."""
        return resources.topic_of(self.name)

    @property
    def of_topic(self) -> tuple[Exercise, ...]:
        """The exercises of all notebooks of its topic."""
        found: tuple[Exercise, ...] = import_module(f"kit.topics.{self.topic}.exercises").EXERCISES
        return found

    @property
    def exercises(self) -> tuple[Exercise, ...]:
        """In the order a learner meets them."""
        return tuple(each for each in self.of_topic if each.lab == self.name)


@cache
def labs() -> dict[str, Lab]:
    """Every lab by its name, by number. Raises ValueError for an own one with the topic of a shipped one."""
    found: dict[str, Lab] = {}
    for folder in (resources.shipped(), *resources.own()):
        for notebook in folder.notebooks():
            lab = Lab(notebook.stem, notebook, folder.labs / "solutions" / f"{notebook.stem}.py")
            if not (folder.topics / lab.topic / "exercises.py").is_file():
                continue
            others = [other for other in found.values() if other.topic == lab.topic]
            elsewhere = [other for other in others if other.notebook.parent != lab.notebook.parent]
            if any(other.notebook.parent == resources.labs() for other in elsewhere):
                raise ValueError(
                    f"{notebook} has the topic of lab {elsewhere[0].name}: give it, and its folder, another name"
                )
            if not elsewhere:
                found[lab.name] = lab
    return dict(sorted(found.items()))


@cache
def exercises() -> dict[str, Exercise]:
    """Every exercise by its id, in the order of the labs. Raises ValueError for an id that two of them have."""
    found: dict[str, Exercise] = {}
    for lab in labs().values():
        for exercise in lab.of_topic:
            if exercise.lab not in labs():
                raise ValueError(
                    f"the exercise {exercise.id!r} is said to belong to lab {exercise.lab}, and there is none:"
                    f" name in {lab.topic}/exercises.py the notebook it stands in"
                )
        for exercise in lab.exercises:
            if exercise.id in found:
                raise ValueError(
                    f"lab {lab.name} has an exercise {exercise.id!r}, and lab {found[exercise.id].lab} has one too:"
                    " give it another id"
                )
            found[exercise.id] = exercise
    return found


@cache
def answers() -> dict[str, Answer]:
    """What is right in the questions of all labs, by the question's id: ANSWERS of each `kit.topics.<topic>.questions`.

    Raises ValueError for an id that two topics have.
    """
    found: dict[str, Answer] = {}
    for topic in dict.fromkeys(lab.topic for lab in labs().values()):
        module = f"kit.topics.{topic}.questions"
        more: dict[str, Answer] = import_module(module).ANSWERS if find_spec(module) else {}
        twice = found.keys() & more.keys()
        if twice:
            raise ValueError(f"{module} has an answer to {', '.join(twice)}, and another topic has one too: rename it")
        found |= more
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
