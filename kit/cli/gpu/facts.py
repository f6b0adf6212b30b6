"""What a step runs on, what it says while it runs, and what came of it: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from kit.trace.text import counted

Status = Literal["PASS", "FAIL", "SKIP"]


@dataclass(frozen=True, slots=True)
class Place:
    """What the steps run on."""

    device: str  # 'cuda', 'xpu', 'cpu'
    ranks: int  # one for each device, unless fewer were asked for
    pace: float = 1.0  # how much longer than usual things may take

    def __str__(self) -> str:
        return f"{counted(self.ranks, 'rank')} on {self.device}"


# ------------------------------------------------------------------------------------- said by a step's own process


@dataclass(frozen=True, slots=True)
class Doing:
    """Which part it has come to: where it stood, if it ends without a word."""

    part: str


@dataclass(frozen=True, slots=True)
class Fact:
    name: str
    value: Any  # what JSON can hold


@dataclass(frozen=True, slots=True)
class Failure:
    """Something is not as it should be. The step goes on where it can."""

    sentence: str
    detail: str = ""  # a traceback


@dataclass(frozen=True, slots=True)
class Done:
    sentence: str


Said = Doing | Fact | Failure | Done
SAID: dict[str, type[Said]] = {kind.__name__: kind for kind in (Doing, Fact, Failure, Done)}


# ------------------------------------------------------------------------------------------------- what came of one


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one step."""

    number: int
    title: str
    status: Status
    seconds: float
    sentence: str
    failures: tuple[Failure, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    last_words: tuple[str, ...] = ()  # what its process printed last, where it failed
