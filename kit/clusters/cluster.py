"""`Cluster`: the ranks of this kernel, started, looked at, used, reset and stopped."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from kit.clusters.errors import ClusterError
from kit.clusters.idle import IdleWatch, checked_minutes
from kit.clusters.lifecycle import START_SECONDS, Lifecycle, client_that_lists
from kit.clusters.report import Report, report
from kit.clusters.request import Request
from kit.trace.text import counted


class Cluster(Lifecycle):
    """Real ranks behind this kernel. Use `kit.cluster(ranks=4)`, which starts one or joins the one there is.

    As a context manager it stops what it started: `with kit.cluster(2) as c: ...`.
    """

    def __init__(self, request: Request, on_stop: Callable[[Cluster], None] = lambda cluster: None) -> None:
        super().__init__(request)
        self._on_stop = on_stop
        self._owner = os.getpid()
        self._lock = threading.RLock()
        self._stops_on_exit: list[bool] = []
        self._idle: IdleWatch | None = None
        self._asleep = ""  # what it did, where it is neither running nor stopped by somebody
        self.fresh = True  # nobody has joined or entered it yet: `with` stops only what it started
        self._begin()

    # using it

    @property
    def client(self) -> Any:
        """ipyparallel's Client of this cluster, once all ranks have registered. `view` has the ranks in order."""
        engines = self.engines
        with self._lock:
            self._refuse_stopped()
            client = self._opened_client()
        return client_that_lists(client, engines)

    @property
    def view(self) -> Any:
        """ipyparallel's DirectView with target i being rank i."""
        return self.client.direct_view(list(self.engines))

    @property
    def engines(self) -> tuple[int, ...]:
        """ipyparallel's engine numbers by rank; waits until all have registered. They change with every reset."""
        state = self.ensure_running()._state
        state.wait_for(lambda: len(state.engines) == self.size or bool(state.lost) or state.agent_lost, START_SECONDS)
        if state.lost:
            raise ClusterError(f"{self._losses()}: reset() forks all ranks anew")
        if len(state.engines) < self.size:
            raise ClusterError("not all ranks have registered as ipyparallel engines: reset() forks them anew")
        return tuple(state.engines[rank] for rank in range(self.size))

    # keeping it

    def ensure_running(self) -> Self:
        """This cluster, started again whole when its controller or agent was lost, or when it had stopped itself.

        ClusterError when it was stopped.
        """
        with self._lock:
            if not self._woken():
                self._refuse_stopped()
                if not self.running:
                    self._begin_again()
            if self._idle is not None:
                self._idle.note()
        return self

    def reset(self, preload: Sequence[str] = ()) -> Self:
        """Kills all ranks and forks new ones: what was on them is gone, this kernel's variables stay.

        preload: modules of torch that the host agent imports once, so that no rank has to.
        Starts the cluster again whole when its controller or agent was lost, or when the ranks do not come back.
        """
        with self._lock:
            if not self._woken():
                self._refuse_stopped()
                if not self.running or not self._fork_anew(preload):
                    self._begin_again()
        return self

    def stop(self) -> None:
        """Ends every process of the cluster. Stopping twice is fine."""
        with self._lock:
            if (self._launched is None and not self._asleep) or self._owner != os.getpid():
                return
            self._end_watch()
            self._asleep = ""
            self._end()
        self._on_stop(self)

    def stop_when_idle(self, minutes: float | None) -> Self:
        """Has the cluster stop itself after so many minutes without a run; None, as at first: never.

        The next use starts it again, with a sentence that says so. ValueError for what is no number above 0.
        """
        wish = checked_minutes(minutes)
        with self._lock:
            self._refuse_stopped()
            self._end_watch()
            self._idle = None if wish is None else self._watched(wish)
        return self

    @property
    def idle_minutes(self) -> float | None:
        """After how many minutes without a run it stops itself; None: never."""
        return None if self._idle is None else self._idle.minutes

    def _watched(self, minutes: float) -> IdleWatch:
        return IdleWatch(minutes, self.connection, lambda: self.pids, self._fall_asleep)

    def _end_watch(self) -> None:
        if self._idle is not None:
            self._idle.end()

    def _fall_asleep(self, minutes: float) -> None:
        with self._lock:
            if self._launched is not None:
                length = "1 minute" if minutes == 1 else f"{minutes:g} minutes"
                self._asleep = f"stopped itself after {length} without a run"
                self._end()

    def _begin_again(self) -> None:
        try:
            super()._begin_again()
        except BaseException:  # what stood in the way may be gone the next time
            self._asleep = "ended and not come up again"
            raise

    def _woken(self) -> bool:
        """Starts a cluster again that had stopped itself, or had not come up again; True when it had."""
        if not self._asleep or self._owner != os.getpid():
            return False
        print(f"The cluster had {self._asleep}: it starts again, what was on the ranks is gone.", file=sys.stderr)
        self._begin()
        self._asleep = ""
        if self._idle is not None:
            self._idle = self._watched(self._idle.minutes)
        return True

    def __enter__(self) -> Self:
        self.ensure_running()
        self._stops_on_exit.append(self.fresh)
        self.fresh = False
        return self

    def __exit__(self, *problem: object) -> None:
        if self._stops_on_exit.pop():
            self.stop()

    def _refuse_stopped(self) -> None:
        if self._asleep and self._owner == os.getpid():
            raise ClusterError(f"The cluster had {self._asleep}: ensure_running() starts it again")
        if self._launched is None:
            raise ClusterError("this cluster was stopped: kit.cluster() starts a new one")
        if self._owner != os.getpid():
            raise ClusterError("this cluster belongs to the process that started it, not to its fork")

    # looking at it

    @property
    def folder(self) -> Path:
        """The private run folder, where the ranks' groups meet; a new one after a restart, gone after `stop`."""
        self._refuse_stopped()
        assert self._launched is not None
        return self._launched.folder.path

    def report(self) -> Report:
        """What was found: hosts, ranks, the device of each, backend, memory, links; as text, card or fields."""
        self.ensure_running()
        return report(self)

    def __repr__(self) -> str:
        if self._launched is None:
            how = f"{self._asleep}: the next use starts it again" if self._asleep else "stopped"
            return f"Cluster({counted(self.size, 'rank')}, {how})"
        state = "" if self.running else ", lost: the next use starts it again"
        return f"Cluster({counted(self.size, 'rank')}, {self.backend}{state})"

    def _repr_mimebundle_(self, **ignored: Any) -> dict[str, str]:
        if not self.running:
            return {"text/plain": repr(self)}
        found = self.report()
        return {"text/plain": str(found), "text/html": found._repr_html_()}
