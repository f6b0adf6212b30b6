"""One run at a time on a cluster: begins it in a clean world, ends the one before, resets when that cannot be done."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kit.protocol.messages import (
    Abort,
    AllReady,
    ControllerLost,
    Ended,
    HostLost,
    Look,
    Move,
    RankLost,
    Run,
    Task,
    ToKernel,
    Unloaded,
)
from kit.run.errors import RanksHeld

if TYPE_CHECKING:
    from kit.clusters.cluster import Cluster
    from kit.probe.shipping import Package
    from kit.protocol.links import Links
    from kit.run.slow_links import SlowLinks

CAPTURE_BUDGET = 16 << 20  # bytes of tensors that one rank may record in one run
GRACE = 1.5  # s a rank has to leave the run before; after that all ranks are forked anew


@dataclass(frozen=True)
class Replaced:
    """Said to the owner of a run: the next one has begun."""


Handler = Callable[[ToKernel | Replaced], None]


class RunScheduler:
    """Shared by all sessions and records of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._numbers = itertools.count(1)
        self._worlds = itertools.count(1)
        self._news = threading.Condition()
        self._run: int | None = None
        self._handler: Handler | None = None
        self._left: set[int] = set()  # ranks that may still be in the run
        self._world = (cluster.generation, cluster.size)
        self._clean = True
        self._ready: set[str] = set()
        self._links: SlowLinks | None = None
        self.throttle: Links | None = None  # what the ranks of the next run are told of their links
        self._broken: str | None = None
        self._held: tuple[str, int] | None = None  # (by what, generation of the ranks)
        self._lent = False
        cluster.connection.subscribe(self._hear)

    @property
    def size(self) -> int:
        return self.cluster.size

    @property
    def links(self) -> SlowLinks | None:
        """What slows the links from the next run on."""
        return self._links

    @links.setter
    def links(self, slow: SlowLinks | None) -> None:
        self.throttle = None if slow is None else slow.throttle(self.size)
        self._links = slow

    def begin(
        self,
        package: Package,
        mode: Literal["step", "record"],
        size: int,
        handler: Handler,
        *,
        patience: int,
        account: Mapping[str, tuple[str, ...]] | None = None,
        motion: int = 0,
    ) -> int:
        """Starts a run on the first `size` ranks; its messages go to `handler` in the connection's thread. Returns
        its number. account: see `Task`; patience, motion: see `Run`.
        """
        if self._lent:
            store = None  # the groups of who lends them stay
        else:
            if self.held_by:
                raise RanksHeld(self.held_by)
            self._make_way()
            self.cluster.ensure_running()
            self._have_all()
            self._have_ready(package.preload)
            store = self._world_for(size)
        with self._news:
            run = next(self._numbers)
            self._run, self._handler, self._left = run, handler, set(range(size))
        links = None if self.throttle is None else self.throttle.of(self.cluster.folder)
        task = task_of(package, run, mode, size, store, links, account)
        self.cluster.connection.send(Run(task, package.arguments, patience, motion))
        return run

    def hold(self, why: str) -> None:
        """Keeps the ranks, in a clean world of all of them, for what runs there as tasks of ipyparallel's.

        Who begins a run until `free`, or until they are forked anew, gets RanksHeld with `why` for its text.
        """
        if self.held_by:
            raise RanksHeld(self.held_by)
        self._make_way()
        self.cluster.ensure_running()
        self._have_all()
        if self._world_for(self.size) is not None:
            self.cluster.reset()
        self._held = (why, self.cluster.generation)

    @property
    def held_by(self) -> str:
        """What has the ranks, and how they come free; '' where nothing has."""
        return self._held[0] if self._held is not None and self._held[1] == self.cluster.generation else ""

    @contextmanager
    def lending(self) -> Iterator[None]:
        """A run begun inside has the ranks as they are, with their groups; `take_back` ends it."""
        self._lent = True
        try:
            yield
        finally:
            self._lent = False

    def take_back(self, seconds: float) -> bool:
        """Ends the run that the ranks were lent to; whether all have left it, after at most `seconds`."""
        run = self._run
        if run is None:
            return True
        if self._handler is not None:
            self._handler(Replaced())
        self.end(run, "the ranks were taken back")
        left = self.wait_until_left(run, seconds)
        self._run = None
        return left

    def free(self) -> None:
        """The next run begins in a new world: what held the ranks may have left groups there."""
        self._held, self._clean = None, False

    def _have_all(self) -> None:
        """A rank that died between runs, or before the first, would be waited for."""
        lost = self.cluster.lost
        if lost:
            print("Ranks forked anew:", ", ".join(f"rank {rank} died ({how})" for rank, how in lost.items()) + ".")
            self.cluster.reset()

    def _have_ready(self, modules: tuple[str, ...]) -> None:
        """Forks the ranks anew, once, from an agent that has imported what this function will use."""
        missing = set(modules) - self._ready
        if missing:
            self._ready |= missing
            self.cluster.reset(preload=sorted(missing))

    def _world_for(self, size: int) -> str | None:
        """The file in which ranks meet as a new world of `size`; None when they are in a clean one of that size
        already.
        """
        generation = self.cluster.generation
        if self._world[0] != generation:  # forked since: the new ranks met as they came up
            self._world, self._clean = (generation, self.cluster.size), True
        usable = self._world[1] == size and self._clean
        self._world, self._clean = (generation, size), True
        return None if usable else str(self.cluster.folder / f"world-{generation}-{next(self._worlds)}")

    def send(self, order: Move | Look) -> None:
        self.cluster.connection.send(order)

    def broke(self, why: str) -> None:
        """The current run cannot be left cleanly: the next one begins on new ranks."""
        self._broken = why

    def wait_until_left(self, run: int, seconds: float) -> bool:
        """Whether all ranks have left the run, after at most `seconds`."""
        deadline = time.monotonic() + seconds
        with self._news:
            while self._run == run and self._left and self._broken is None:
                if not self._news.wait(deadline - time.monotonic()):
                    return False
            return self._broken is None

    def end(self, run: int, reason: str) -> None:
        """Asks all ranks to leave a run."""
        with self._news:
            if self._run != run or not self._left:
                return
        self.cluster.connection.send(Abort(run, reason))

    def _make_way(self) -> None:
        """Ends the run before; ranks that will not leave it are forked anew."""
        run = self._run
        if run is None:
            return
        if self._broken is None and self._left and self.cluster.running:
            if self._handler is not None:
                self._handler(Replaced())
            self.end(run, "a new run has begun")
            if not self.wait_until_left(run, GRACE):
                self._broken = self._broken or "a rank did not leave the run before it"
        if self._broken is not None:
            print(f"Ranks forked anew: {self._broken}.")
            self.cluster.reset()
        self._run, self._broken = None, None

    def _hear(self, message: ToKernel) -> None:
        if isinstance(message, AllReady) and message.generation <= self._world[0]:
            return  # old news: the run has begun on the ranks that this tells of
        with self._news:
            match message:
                case RankLost():
                    if self._run is not None:
                        self._broken = f"rank {message.rank} died ({message.detail})"
                case AllReady():
                    self._left, self._broken = set(), None
                case HostLost() | ControllerLost():
                    pass
                case _ if getattr(message, "run", None) != self._run:
                    self._news.notify_all()
                    return
                case Ended() | Unloaded():
                    self._left.discard(message.rank)
                    self._clean = self._clean and isinstance(message, Ended) and message.clean
                case _:
                    pass
            handler = self._handler
            self._news.notify_all()
        if handler is not None:
            handler(message)


def task_of(
    package: Package,
    run: int,
    mode: Literal["step", "record"],
    size: int,
    store: str | None = None,
    links: Links | None = None,
    account: Mapping[str, tuple[str, ...]] | None = None,
) -> Task:
    """What all ranks are told of a packed function."""
    return Task(
        run=run,
        mode=mode,
        size=size,
        store=store,
        function=package.function,
        rest=package.rest,
        sources=package.sources,
        root_file=package.root_file,
        budget=CAPTURE_BUDGET,
        links=links,
        account=account,
    )
