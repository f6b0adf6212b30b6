"""What a step is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from kit.trace.text import counted

if TYPE_CHECKING:
    from kit.cli.gpu.bench import Bench
    from kit.cli.gpu.facts import Place


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
    patience: ClassVar[float] = 8.0  # seconds of one run on ranks, which a step that hangs may do several times
    needs: ClassVar[Needs] = Needs()

    @abstractmethod
    def run(self, bench: Bench) -> str:
        """Asks it, and returns what was found, as one sentence. Facts are noted in the bench, and what is not as it
        should be as a failure; what it raises is one more.
        """
