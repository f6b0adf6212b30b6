"""`Runner`: where functions are run. Live ranks, threads of one process and recordings of a lab each are one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kit.run.call import Call
from kit.run.slow_links import SlowLinks
from kit.trace.memory import DECLARED

if TYPE_CHECKING:
    from typing import Self

    from kit.cost.sweep import Sweep
    from kit.run.cursor import Steppable
    from kit.run.results import Recording

MANY, MOST = 16, 128  # ranks that are threads: unless said, and at most


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a function is run, as plain data: see `kit.run.options.Options`. ValueError for what cannot be."""

    ranks: int | None = None
    threads: bool = False
    patience: float = 60.0
    limit: float | None = None
    memory: bool = False
    kinds: Mapping[str, str | Sequence[str]] | None = None
    link: SlowLinks | None = None

    def __post_init__(self) -> None:
        unknown = [kind for kind in self.kinds or () if kind not in DECLARED]
        if unknown:
            raise ValueError(f"there is no kind of memory {unknown[0]!r}: choose from {', '.join(DECLARED)}")
        if self.kinds and not self.memory:
            raise ValueError("kinds says where memory belongs: kit.options(memory=True, kinds=...) accounts for it")
        if self.threads and self.ranks is not None and not (_whole(self.ranks) and 1 <= self.ranks <= MOST):
            raise ValueError(
                f"ranks is a whole number from 1 to {MOST}, not {self.ranks!r}: kit.options(ranks=16, threads=True)"
            )
        if not isinstance(self.patience, int | float) or not self.patience > 0:
            raise ValueError(f"patience is a time in seconds, more than 0, not {self.patience!r}")
        if self.limit is not None and not (isinstance(self.limit, int | float) and self.limit > 0):
            raise ValueError(f"limit is a time in seconds, more than 0, or None for no limit, not {self.limit!r}")
        if self.threads and self.limit is not None:
            raise ValueError("ranks that are threads have patience in the place of a limit: kit.options(patience=60)")
        if self.threads and (self.memory or self.link):
            raise ValueError("threads share one memory and have no links: leave out threads, or memory and link")

    def world(self, size: int) -> int:
        """How many ranks run on a cluster of `size`."""
        usual = MANY if self.threads else size
        return usual if self.ranks is None else self.ranks

    def variables(self) -> dict[str, tuple[str, ...]]:
        """Names of variables by kind of memory, as plain data."""
        kinds = self.kinds or {}
        return {kind: (names,) if isinstance(names, str) else tuple(names) for kind, names in kinds.items()}


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class SweepPlan(NamedTuple):
    """What a bandwidth sweep measures: see `kit.bandwidth`."""

    operations: str | Sequence[str] | None = None
    sizes: int | Sequence[int] | None = None
    repeats: int = 7
    warm_up: int = 2
    ranks: int | None = None


class Link(Protocol):
    @property
    def between(self) -> str: ...
    @property
    def kind(self) -> str: ...


class Report(Protocol):
    """What any runner says of the machine it runs on, or was recorded on; `str()` is what a person reads."""

    @property
    def backend(self) -> str: ...
    @property
    def devices(self) -> tuple[str, ...]: ...
    @property
    def links(self) -> Sequence[Link]: ...
    @property
    def software(self) -> str: ...


class Runner(ABC):
    """Where functions are run."""

    no_ranks_because = ""  # a sentence where there are none
    held_by = ""  # a sentence where something that goes on by itself has them

    @abstractmethod
    def open_session(self, call: Call, options: RunOptions) -> Steppable:
        """A session that stands before the function's first line."""

    @abstractmethod
    def run(self, call: Call, options: RunOptions, quiet: bool = False) -> Recording:
        """A run at full speed. RankError when ranks fail, hang or disagree.

        quiet: as a check runs things: nothing that ranks print is shown, and none of it is recorded for replay.
        """

    @abstractmethod
    def sweep(self, plan: SweepPlan) -> Sweep:
        """Times of collectives over sizes."""

    @abstractmethod
    def report(self) -> Report:
        """What was found: ranks, the device of each, backend, links; as text, card or fields."""

    @abstractmethod
    def reset(self) -> Self:
        """Forks all ranks anew: the way out of every hang. Variables of the kernel stay."""

    @abstractmethod
    def stop(self) -> None:
        """Ends every process. Stopping twice is fine."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of ranks."""

    @property
    @abstractmethod
    def backend(self) -> str:
        """'gloo' or 'nccl'."""

    @property
    @abstractmethod
    def devices(self) -> tuple[str, ...]:
        """Devices by rank: 'cpu', 'cuda:0'."""

    @property
    @abstractmethod
    def links(self) -> SlowLinks | None:
        """What slows the links from the next run on; None: nothing does."""

    @links.setter
    @abstractmethod
    def links(self, slow: SlowLinks | None) -> None: ...

    @property
    def live(self) -> Runner | None:
        """The ranks of a cluster that do the work; None where none do."""
        return None

    def keep(self, name: str, text: Callable[[], str]) -> None:  # noqa: B027  # most runners have no use for it
        """For readers without ranks, where a lab is being recorded: what is shown of something that goes on by itself.

        text: is asked for when the lab is over.
        """

    # in a person's words

    def step(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Steppable:
        """Steps `function(*args, **kwargs)` on all ranks: a session that stands before its first line."""
        return self.open_session(Call(function, args, kwargs), RunOptions())

    def record(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Recording:
        """Runs `function(*args, **kwargs)` on all ranks at full speed: an object with `trace` and `results`."""
        return self.run(Call(function, args, kwargs), RunOptions())

    def link(
        self, latency: float = 0.0, bandwidth: float = math.inf, between: Sequence[Sequence[int]] | None = None
    ) -> SlowLinks:
        """`kit.link` for these ranks."""
        return SlowLinks(latency, bandwidth, between, lambda: self).of(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        return None
