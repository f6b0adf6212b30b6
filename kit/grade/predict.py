"""A guess before the run: asked for, committed, then set beside what came out, with a reason for usual wrong ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from kit.grade import discovery
from kit.grade.question import Answer, Guess, Why
from kit.grade.verdict import card
from kit.plot.palette import COMMUNICATE, RANKS


@dataclass(frozen=True)
class Reveal:
    """The guess beside the truth. `str()` is what a person reads; a notebook shows the card."""

    sentences: tuple[str, ...]
    right: bool | None  # None: nothing was guessed

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        colour = {None: "#8c959f", True: RANKS[2], False: COMMUNICATE}[self.right]
        return card("".join(f"<div>{escape(sentence)}</div>" for sentence in self.sentences), colour, "ls-reveal")


class Prediction:
    """A question with either `choices` or named numbers (`units`: name -> unit, may be empty).

    `commit` takes the guess, `reveal` compares. Raises ValueError for a question with neither or both, or with a
    choice that is there twice.
    """

    def __init__(
        self, identity: str, question: str, choices: Sequence[str] | None = None, units: Mapping[str, str] | None = None
    ) -> None:
        self.choices = tuple(choices or ())
        self.units = dict(units or {})
        if bool(self.choices) == bool(self.units):
            raise ValueError(f"prediction {identity!r} needs either choices=[...] or named numbers, as in rank_0='MB'")
        if len(set(self.choices)) < len(self.choices):
            raise ValueError(f"prediction {identity!r} names a choice twice: {', '.join(self.choices)}")
        self.identity = identity
        self.question = question
        self.choice: str | None = None
        self.numbers: dict[str, float] = {}

    @property
    def committed(self) -> bool:
        return self.choice is not None or bool(self.numbers)

    def commit(self, choice: str | None = None, **numbers: float) -> None:
        """Take the guess: one of the choices, or a number for every name. A later guess replaces it.

        Raises ValueError for a choice there is not, a name missing or unknown, or something that is no number.
        """
        if self.choices:
            if choice not in self.choices or numbers:
                raise ValueError(f"choose one of: {'; '.join(self.choices)}")
            self.choice = choice
            return
        if choice is not None or numbers.keys() != self.units.keys():
            raise ValueError(f"give one number for each of: {', '.join(self.units)}")
        self.numbers = {name: _number(name, value, self.units[name]) for name, value in numbers.items()}

    def reveal(
        self, choice: str | None = None, *, why: Why | None = None, within: float = 0.05, **numbers: float
    ) -> Reveal:
        """Set the guess beside the truth; numbers count as right within that share of it.

        The right choice and the reasons are those of the lab's `Answer`, where it has one; what is named beside the
        numbers asked for are facts that its reasons need. Raises ValueError when the truth is not one of the choices,
        when a number or a fact is missing or unknown, and when a reason is for what cannot be guessed.
        """
        known = discovery.answers().get(self.identity, Answer()) if why is None else Answer(why=why)
        choice = known.right if choice is None else choice
        facts = {name: value for name, value in numbers.items() if name not in self.units}
        if self.choices and choice not in self.choices:
            raise ValueError(f"the answer {choice!r} is not one of the choices: {'; '.join(self.choices)}")
        if not self.choices and (choice is not None or not self.units.keys() <= numbers.keys()):
            raise ValueError(f"the answer should name {', '.join(self.units)}")
        reasons = self._by_guess(known.reasons(facts))
        if not self.committed:
            return Reveal(("No guess yet. Commit one above, then run this cell again.",), None)
        then = (known.then,) if known.then else ()
        if choice is not None:
            right, sentence = self._compare_choice(choice, reasons)
            return Reveal((sentence, *then), right)
        found = [self._compare_number(name, numbers[name], reasons, within) for name in self.units]
        return Reveal((*(sentence for _, sentence in found), *then), all(right for right, _ in found))

    def _by_guess(self, why: Why) -> dict[Guess, str]:
        if isinstance(why, str):
            return dict.fromkeys(self.choices or self.units, why)
        strange = {key if isinstance(key, str) else key[0] for key in why} - {*self.choices, *self.units}
        if strange:
            raise ValueError(
                f"prediction {self.identity!r} has reasons for {', '.join(strange)}, which nobody can guess"
            )
        return dict(why)

    def _compare_choice(self, truth: str, reasons: Mapping[Guess, str]) -> tuple[bool, str]:
        if self.choice == truth:
            return True, f"Right: {truth}."
        reason = reasons.get(str(self.choice), "")
        return False, f"You said: {self.choice}. It was: {truth}. {reason}".rstrip()

    def _compare_number(self, name: str, truth: float, reasons: Mapping[Guess, str], within: float) -> tuple[bool, str]:
        guess, unit = self.numbers[name], self.units[name]
        if _close(guess, truth, within):
            return True, f"{_label(name)}: right, {_amount(truth, unit)}."
        usual = {key[1]: text for key, text in reasons.items() if isinstance(key, tuple) and key[0] == name}
        reason = next((text for wrong, text in usual.items() if _close(guess, wrong, within)), reasons.get(name, ""))
        said = f"{_label(name)}: you said {_amount(guess, unit)}, it was {_amount(truth, unit)}."
        return False, f"{said} {reason}".rstrip()

    def __repr__(self) -> str:
        numbers = ", ".join(f"{_label(name)}: ? {unit}".rstrip() for name, unit in self.units.items())
        return f"{self.question}\n{' | '.join(self.choices) or numbers}"


def _label(name: str) -> str:
    return name.replace("_", " ")


def _amount(value: float, unit: str) -> str:
    number = f"{value:,.0f}" if value == round(value) and 1e4 <= abs(value) < 1e12 else f"{value:.4g}"
    return f"{number} {unit}".rstrip()


def _close(one: float, other: float, within: float) -> bool:
    return math.isclose(one, other, rel_tol=within, abs_tol=1e-9)


def _number(name: str, value: object, unit: str) -> float:
    text = str(value).strip().removesuffix(unit).replace(",", ".")
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{_label(name)} should be a number, for example 4 or 2.5")
    return number
