"""A wrong solution, and the words by which its own sentence is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kit.check import exercise


@dataclass(frozen=True)
class Mutant:
    exercise: str
    stage: str
    words: tuple[str, ...]  # all of them stand in the sentence
    function: Callable[..., Any]

    @property
    def name(self) -> str:
        return f"{self.exercise}/{self.function.__name__}"


class Mutants:
    """Collects the wrong solutions of one file."""

    def __init__(self) -> None:
        self.all: list[Mutant] = []

    def __call__(self, identity: str, stage: str, *words: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            self.all.append(Mutant(identity, stage, words, exercise(identity)(function)))
            return function

        return add
