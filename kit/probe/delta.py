"""Stops on the wire: a tensor that is the same fact as before travels as its number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from kit.trace.facts import Frame, TensorFact


class Encoder:
    """In the rank. Holds every fact it has sent, so that object identity means sameness."""

    def __init__(self) -> None:
        self._sent: dict[int, tuple[TensorFact, int]] = {}

    def encode(self, frames: tuple[Frame, ...]) -> tuple[tuple[Frame, ...], dict[int, TensorFact]]:
        """Frames that hold numbers for tensors, and the facts behind numbers not sent before."""
        new: dict[int, TensorFact] = {}
        encoded = []
        for frame in frames:
            numbers = []
            for fact in frame.tensors:
                if id(fact) not in self._sent:
                    number = len(self._sent)
                    self._sent[id(fact)] = (fact, number)
                    new[number] = fact
                numbers.append(self._sent[id(fact)][1])
            encoded.append(replace(frame, tensors=cast("Any", tuple(numbers))))
        return tuple(encoded), new


class Decoder:
    """In the kernel, one for each rank of a run."""

    def __init__(self) -> None:
        self._facts: dict[int, TensorFact] = {}

    def decode(self, frames: tuple[Frame, ...], new: dict[int, TensorFact]) -> tuple[Frame, ...]:
        self._facts.update(new)
        return tuple(replace(f, tensors=tuple(self._facts[cast("int", n)] for n in f.tensors)) for f in frames)
