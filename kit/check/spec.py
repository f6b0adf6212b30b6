"""What a check knows about an exercise: how to draw inputs, what is right, and what may be sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, Protocol

from kit.trace.facts import Trace


@dataclass(frozen=True)
class Case:
    """One drawing of inputs: what every rank of a world is called with."""

    world: int
    arguments: tuple[tuple[Any, ...], ...]  # by rank
    size: int  # the size that varies: C, K or total
    facts: Mapping[str, Any] = field(default_factory=dict)  # what the oracle and the diagnoses want to know: 'source'
    drive: Callable[..., Any] | None = (
        None  # on a rank drive(function, *arguments) uses the function; None: it is called
    )


@dataclass(frozen=True)
class Run:
    """What the learner's function did with a case on real ranks."""

    case: Case
    results: tuple[Any, ...]  # by rank
    after: tuple[tuple[Any, ...], ...]  # the arguments as each rank held them afterwards
    trace: Trace
    file: str = ""  # the learner's file: a line number without a name is a line of it


class Runner(Protocol):
    """How a check runs a function: on the first `world` ranks, each with its own arguments.

    Returns (results by rank, trace). A function that failed, hung or died on a rank makes it raise an exception whose
    text is the sentence a person reads and whose `trace` is what was seen until then.
    """

    def __call__(
        self, function: Callable[..., Any], world: int, arguments: Sequence[tuple[Any, ...]], /
    ) -> tuple[Sequence[Any], Trace]: ...


Draw = Callable[[Trace], str]
"""Turns a trace into HTML or SVG text."""


class Bench(NamedTuple):
    """What a check is handed: how to run on ranks, how many there are, how to draw a run (None: tables only), and
    where there are none, why.
    """

    runner: Runner
    ranks: int
    draw: Draw | None = None
    without_ranks: str = ""


Rule = Callable[[Run], str | None]
"""Looks at a run and returns None, or the sentence that says what is wrong with it."""

Diagnosis = Callable[[Run, Sequence[Any]], str | None]
"""Looks at a run whose values are wrong, and at the right ones by rank; returns the mistake's own sentence or None."""


@dataclass(frozen=True)
class Spec:
    """One exercise, ready to be checked."""

    id: str
    lab: str  # '01_collectives'
    function: str  # the name of the function in labs/solutions
    size: str  # what Case.size is called in the docstring: 'C'
    cases: Callable[[int, Random], Iterator[Case]]  # for one world size, easiest first
    oracle: Callable[[Case], list[Any]]  # the right result by rank, computed serially
    hints: tuple[str, str, str]
    before: tuple[Rule, ...] = ()  # looked at before results are compared: the input was changed, too much was printed
    diagnoses: tuple[Diagnosis, ...] = ()
    traffic: tuple[Rule, ...] = ()
    cost: tuple[Rule, ...] = ()
    advice: tuple[tuple[str, str], ...] = ()  # (regular expression in a rank's failure, what usually causes it)
    errors: tuple[tuple[str, str], ...] = ()  # (regular expression in its exception, what usually causes that)
    tolerance: float = 1e-5  # relative to the largest right value
    praise: str = ""  # what a passed check adds: the budget that was kept
