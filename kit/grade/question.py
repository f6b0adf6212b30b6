"""What the author of a lab knows of its questions: the right choice, and why usual wrong guesses are wrong."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Guess = str | tuple[str, float]
"""A wrong guess: a choice, 'it waits'; a number, ('rank_0', 4.0); or any wrong number of a name, 'rank_0'."""
Why = Mapping[Any, str] | str
"""Reasons for wrong guesses, by `Guess`; or one for all of them."""


@dataclass(frozen=True)
class Answer:
    """It stands beside the exercises of a topic, in no cell of a notebook.

    right: the choice, where no run decides it. why: reasons for wrong guesses, or a function that makes them of facts
    of the run, which `reveal` is given by their names. then: what is said to everybody who has guessed.
    """

    right: str | None = None
    why: Why | Callable[..., Why] = ""
    then: str = ""

    def reasons(self, facts: Mapping[str, Any]) -> Why:
        """Raises ValueError for facts that are not those asked for."""
        asked = set(inspect.signature(self.why).parameters) if callable(self.why) else set()
        if asked != facts.keys():
            raise ValueError(
                f"the reasons are told by {', '.join(sorted(asked)) or 'nothing'}, not by {', '.join(facts)}"
            )
        return self.why(**facts) if callable(self.why) else self.why
