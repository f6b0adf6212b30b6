"""A cluster's processes from start to end: begun, forked anew, begun again whole, ended; and its ipyparallel client."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from kit.clusters import needs
from kit.clusters.connection import Connection
from kit.clusters.errors import ClusterError, Unavailable
from kit.clusters.launch import Launched
from kit.clusters.progress import Progress
from kit.clusters.request import Request
from kit.clusters.state import ClusterState
from kit.protocol.messages import Found, RankLost, Reset, Shutdown, ToKernel
from kit.trace.text import counted

START_SECONDS = 60.0
RESET_SECONDS = 20.0
REFUSALS: dict[str, type[Exception]] = {"wish": ValueError, "environment": Unavailable, "failure": ClusterError}
ASKING = 0.5  # s between two questions for engines that are not listed


class Lifecycle:
    """What there is of a cluster. Not thread-safe: `Cluster` lets one thread at a time begin, reset or end it."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._launched: Launched | None = None
        self._state = ClusterState()
        self.connection = Connection()  # to the host agent; it stays the same object for the cluster's life
        self.connection.subscribe(self._hear)
        self._client: Any = None
        self.started_in = 0.0  # s, from nothing to ranks that have joined their group

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.request.ranks

    @property
    def running(self) -> bool:
        """Whether it can be used as it is: False when stopped, or when its controller or its agent was lost."""
        return self._launched is not None and not self._state.agent_lost and not self._state.controller_lost

    @property
    def generation(self) -> int:
        """Counts resets and restarts: ranks of another generation are other processes."""
        return self._state.generation

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids by rank."""
        return tuple(pid for _, pid in sorted(self._state.pids.items()))

    def kill(self, rank: int) -> None:
        """As a machine does that runs out of memory: the process is gone at once (SIGKILL), whatever it was doing.

        Raises ValueError for a rank that is not there.
        """
        if rank not in self._state.pids:
            raise ValueError(f"there is no rank {rank!r} to be killed: ranks are 0 to {self.size - 1}")
        os.kill(self._state.pids[rank], signal.SIGKILL)

    @property
    def lost(self) -> dict[int, str]:
        """The ranks whose process has ended, and how: {2: 'killed by SIGKILL'}."""
        return dict(self._state.lost)

    @property
    def processes(self) -> tuple[int, ...]:
        """Process ids of everything that runs for this cluster: agent, controller and its heart monitor, ranks."""
        launched, lost = self._launched, self.lost
        if launched is None:
            return ()
        return (*launched.processes(), *(pid for rank, pid in enumerate(self.pids) if rank not in lost))

    @property
    def found(self) -> Found:
        """What the agent found on its host and decided."""
        assert self._state.found is not None, "every started cluster has heard it"
        return self._state.found

    @property
    def backend(self) -> str:
        """'gloo' or 'nccl'."""
        return self.found.backend

    @property
    def devices(self) -> tuple[str, ...]:
        """Devices by rank: 'cpu', 'cuda:0'."""
        return self.found.devices

    def _begin(self) -> None:
        """Starts all processes and waits for the ranks. ValueError or ClusterError says why it cannot be."""
        progress = Progress()
        progress.say(f"starting {counted(self.size, 'rank')}")
        needs.look(self.size)
        before = self._state.forked
        self._state = ClusterState(generation=before, forked=before)
        self._launched = Launched(self.request, before + 1)
        try:
            self._meet(progress, before + 1)
        except BaseException:
            progress.done(f"starting {counted(self.size, 'rank')} did not work")
            self._end()
            raise
        self.started_in = progress.seconds()
        words = f"{counted(self.size, 'rank')} on {' '.join(dict.fromkeys(self.devices))}, {self.backend}"
        progress.done(" · ".join([words, f"{self.started_in:.1f} s", *self.found.notes]))

    def _fork_anew(self, preload: Sequence[str] = ()) -> bool:
        """Has the agent kill all ranks and fork new ones, which find `preload` imported.

        False when that did not work and a whole restart is due.
        """
        state = self._state
        wanted = state.forked + 1
        try:
            self.connection.send(Reset(tuple(preload)))
        except ConnectionError:
            return False

        def settled() -> bool:
            failed = state.forked >= wanted and bool(state.lost or state.refusal)
            return state.generation >= wanted or state.agent_lost or failed

        state.wait_for(settled, RESET_SECONDS)
        return state.generation >= wanted

    def _begin_again(self) -> None:
        """Ends what is left and starts all of it anew, with a sentence that says so."""
        state = self._state
        lost = "host agent" if state.agent_lost else "controller" if state.controller_lost else "ranks' answer"
        print(f"The cluster's {lost} was lost: all of it starts again, what was on the ranks is gone.", file=sys.stderr)
        self._end()
        self._begin()

    def _end(self) -> None:
        """Leaves no process and no file."""
        launched, self._launched = self._launched, None
        client, self._client = self._client, None
        with suppress(ConnectionError):  # there may be no agent to ask: what is left is killed below
            self.connection.send(Shutdown())
        self.connection.close()
        if launched is not None:
            launched.end(patience=0.5)
        if client is not None:
            client.close(linger=0)

    def _opened_client(self) -> Any:
        """ipyparallel's Client, made on first use."""
        if self._client is None:
            assert self._launched is not None
            self._client = self._launched.client()
        return self._client

    def _losses(self) -> str:
        return ", ".join(f"rank {rank} was lost ({how})" for rank, how in sorted(self._state.lost.items()))

    def _meet(self, progress: Progress, generation: int) -> None:
        assert self._launched is not None
        log = self._launched.folder.log_tail
        channel = self._launched.channel(START_SECONDS)
        if channel is None:
            raise ClusterError(
                f"the host agent did not call in {START_SECONDS:.0f} s, or ended before it could:\n{log()}"
            )
        self.connection.open(channel)
        state, words = self._state, counted(self.size, "rank")

        def settled() -> bool:
            return state.generation >= generation or bool(state.refusal or state.lost or state.agent_lost)

        while not state.wait_for(settled, 0.2):
            progress.say(f"starting {words}: {'they join their group' if state.pids else 'importing torch'}")
            if progress.seconds() > START_SECONDS:
                raise ClusterError(f"the ranks were not ready in {START_SECONDS:.0f} s:\n{log()}")
        if state.refusal is not None:
            raise REFUSALS[state.refusal.why](state.refusal.detail)
        if state.generation < generation:
            raise ClusterError(f"{self._losses() or 'the host agent ended'} during the start:\n{log()}")

    def _hear(self, message: ToKernel) -> None:
        engine = self._state.engines.get(message.rank) if isinstance(message, RankLost) else None
        self._state.hear(message)
        if self._client is not None and engine is not None:
            _forget(self._client, [engine])  # results that wait for this rank fail now


def client_that_lists(client: Any, engines: Sequence[int], seconds: float = START_SECONDS) -> Any:
    """The client, once it knows of all `engines` and of no others. ClusterError when that takes too long."""
    _forget(client, set(client.ids) - set(engines))
    asked = begun = time.monotonic()
    while missing := set(engines) - set(client.ids):
        now = time.monotonic()
        if now > begun + seconds:
            raise ClusterError(f"ipyparallel does not list engines {sorted(missing)}: reset() forks the ranks anew")
        if now > asked + ASKING:
            _ask_for_engines(client)
            asked = now
        time.sleep(0.01)
    return client


def _ask_for_engines(client: Any) -> None:
    """Has the client list what the controller knows.

    It asks once by itself and then hears of news, but of none that came while its ear was being connected.
    """
    answer = client._send(client._query_stream, "connection_request")
    answer.add_done_callback(lambda heard: client._update_engines(heard.result()["content"]["engines"]))


def _forget(client: Any, dead: Iterable[int]) -> None:
    """Tells the controller that these engines are gone; by itself it takes half a minute to notice a kill."""
    for engine in dead:
        content = {"id": engine}  # the request a leaving engine makes itself; it has no answer
        client._io_loop.add_callback(client.session.send, client._query_socket, "unregistration_request", content)
