"""What a step is, what it runs on, and what it says while it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from kit.trace.text import counted

if TYPE_CHECKING:
    from kit.cli.gpu.bench import Bench

Status = Literal["PASS", "FAIL", "SKIP"]


@dataclass(frozen=True, slots=True)
class Place:
    """What the steps run on."""

    device: str  # 'cuda', 'xpu', 'cpu'
    ranks: int  # one for each device, unless fewer were asked for

    def __str__(self) -> str:
        return f"{counted(self.ranks, 'rank')} on {self.device}"


@dataclass(frozen=True, slots=True)
class Needs:
    """Without which a step cannot say anything."""

    torch: bool = True
    ranks: int = 1

    def missing(self, place: Place | None) -> str:
        """Why a step with these needs is left out at `place`, or '' where it is not. None: torch found no device."""
        if place is None:
            return "torch or its devices cannot be used: see step 1" if self.torch else ""
        if place.ranks < self.ranks:
            return f"it takes {self.ranks} ranks with a device each, and there is {counted(place.ranks, 'device')}"
        return ""


class Step(ABC):
    """One question to a machine with GPUs."""

    number: ClassVar[int]
    title: ClassVar[str]
    limit: ClassVar[float]  # seconds
    needs: ClassVar[Needs] = Needs()

    @abstractmethod
    def run(self, bench: Bench) -> str:
        """Asks it, and returns what was found, as one sentence. Facts are noted in the bench, and what is not as it
        should be as a failure; what it raises is one more.
        """


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
