"""What an exercise is: the inputs it draws, what is right, what may be sent, and how people usually get it wrong."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from kit.trace.trace import Trace

Stage = Literal["values", "traffic", "cost"]


@dataclass(frozen=True)
class Case:
    """One drawing of inputs: what every rank of a world is called with."""

    world: int
    arguments: tuple[tuple[Any, ...], ...]  # by rank
    size: int  # the size that varies: C, K or total
    facts: Mapping[str, Any] = field(default_factory=dict)  # what the oracle and the diagnoses want to know: 'source'
    drive: Callable[..., Any] | None = None  # on a rank drive(function, *arguments) uses the function; None: a call


@dataclass(frozen=True)
class Run:
    """What the learner's function did with a case on real ranks."""

    case: Case
    results: tuple[Any, ...]  # by rank
    after: tuple[tuple[Any, ...], ...]  # the arguments as each rank held them afterwards
    trace: Trace
    file: str = ""  # the learner's file: a line number without a name is a line of it


class Runner(Protocol):
    """How a check runs a function: on `world` ranks, each with its own arguments.

    Returns (results by rank, trace). A function that failed, hung or died on a rank makes it raise an exception whose
    text is the sentence a person reads and whose `trace` is what was seen until then.
    """

    def __call__(
        self, function: Callable[..., Any], world: int, arguments: Sequence[tuple[Any, ...]], /
    ) -> tuple[Sequence[Any], Trace]: ...


Rule = Callable[[Run], str | None]
"""Looks at a run and returns None, or the sentence that says what is wrong with it."""

Diagnosis = Callable[[Run, Sequence[Any]], str | None]
"""Looks at a run whose values are wrong, and at the right ones by rank; returns the mistake's own sentence or None."""


Advice = tuple[str, "str | Callable[[Case, Trace], str]"]
"""(regular expression in what the ranks say, what causes it): of the case and what was seen where they decide."""


@dataclass(frozen=True)
class Mistake:
    """A usual mistake: wrong code, the stage of the check that must stop it, and words of the sentence it must get.

    The wrong code is the solution with some of its text replaced (`edits`: old -> new), or with another body (`body`).
    """

    name: str
    stage: Stage
    says: tuple[str, ...]  # each stands in the sentence
    edits: Mapping[str, str] = field(default_factory=dict)
    body: str = ""

    def missed_by(self, stage: str, sentence: str) -> str | None:
        """How a verdict does not fit this mistake; None when it is caught as it should be. stage: "" if it passed."""
        if stage != self.stage:
            return f"it should fail at {self.stage}"
        missing = [words for words in self.says if words not in sentence]
        return f"{missing[0]!r} is not in the sentence" if missing else None

    def code(self, solution: str) -> str:
        """The wrong function's text, made of the solution's. Raises ValueError for an edit that finds nothing."""
        missing = [old for old in self.edits if old not in solution]
        if missing or bool(self.edits) == bool(self.body):
            what = f"{missing[0]!r} is not in the solution" if missing else "give either edits or a body"
            raise ValueError(f"the mistake {self.name!r} cannot be made: {what}")
        if self.body:
            head = re.match(r"def .*?:\n", solution, re.DOTALL)
            assert head is not None, "a solution begins with its def"
            return head[0] + textwrap.indent(inspect.cleandoc(self.body), "    ") + "\n"
        longest_first = sorted(self.edits, key=len, reverse=True)
        return re.sub("|".join(map(re.escape, longest_first)), lambda found: self.edits[found[0]], solution)


@dataclass(frozen=True)
class Exercise:
    """One exercise, ready to be checked."""

    id: str
    lab: str  # '01a_collectives'
    function: str  # the name of the function in the lab's solutions
    size: str  # what Case.size is called in the docstring: 'C'
    cases: Callable[[int, Random], Iterator[Case]]  # for one world size, easiest first
    oracle: Callable[[Case], list[Any]]  # the right result by rank, computed serially
    hints: tuple[str, str, str]
    before: tuple[Rule, ...] = ()  # looked at before results are compared: the input was changed, too much was printed
    diagnoses: tuple[Diagnosis, ...] = ()
    after: tuple[Rule, ...] = ()  # looked at when the results are right: the result is the input itself
    traffic: tuple[Rule, ...] = ()
    cost: tuple[Rule, ...] = ()
    advice: tuple[Advice, ...] = ()  # where ranks wait for ever or disagree
    errors: tuple[Advice, ...] = ()  # where one raises an exception
    mistakes: tuple[Mistake, ...] = ()
    peers_in_group: bool = False  # ranks are named in it, for messages: tried in a group that counts them otherwise too
    beyond: tuple[int, ...] = ()  # larger worlds that are tried too, whatever the cluster has
    tolerance: float = 1e-5  # relative to the largest right value
    praise: str = ""  # what a passed check adds: the budget that was kept
