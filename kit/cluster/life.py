"""A cluster's life: begun, forked anew, begun again whole, ended. What the ranks are used for is not its affair."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from kit.cluster.connection import Connection
from kit.cluster.errors import ClusterError, Unavailable
from kit.cluster.launch import Launched
from kit.cluster.progress import Progress
from kit.cluster.request import Request
from kit.cluster.roll import Roll
from kit.probe.wire import Message

START_SECONDS = 60.0
RESET_SECONDS = 20.0


class Life:
    """Not thread-safe by itself: `Cluster` lets one thread at a time begin, reset or end."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.launched: Launched | None = None
        self.roll = Roll()
        self.connection = Connection()
        self.connection.subscribe(self._hear)
        self.client: Any = None
        self.started_in = 0.0

    @property
    def running(self) -> bool:
        """False when ended, or when the controller or the agent was lost."""
        return self.launched is not None and not self.roll.agent_lost and not self.roll.controller_lost

    def begin(self) -> None:
        """Starts all processes and waits for the ranks. ValueError or ClusterError says why it cannot be."""
        progress = Progress()
        progress.say(f"starting {ranks_in_words(self.request.ranks)}")
        before = self.roll.forked
        self.roll = Roll(generation=before, forked=before)
        self.launched = Launched(self.request, before + 1)
        try:
            self._meet(progress, before + 1)
        except BaseException:
            progress.done(f"starting {ranks_in_words(self.request.ranks)} did not work")
            self.end()
            raise
        self.started_in = progress.seconds()
        assert self.roll.found is not None
        devices, backend = " ".join(dict.fromkeys(self.roll.found.devices)), self.roll.found.backend
        progress.done(f"{ranks_in_words(self.request.ranks)} on {devices}, {backend} · {self.started_in:.1f} s")

    def fork_anew(self, preload: Sequence[str] = ()) -> bool:
        """Has the agent kill all ranks and fork new ones, which find `preload` imported.

        False when that did not work and a whole restart is due.
        """
        roll = self.roll
        wanted = roll.forked + 1
        try:
            self.connection.send({"kind": "reset", "preload": tuple(preload)})
        except ConnectionError:
            return False

        def settled() -> bool:
            return roll.generation >= wanted or roll.agent_lost or (roll.forked >= wanted and bool(roll.lost))

        roll.wait_for(settled, RESET_SECONDS)
        return roll.generation >= wanted

    def begin_again(self) -> None:
        """Ends what is left and starts all of it anew, with a sentence that says so."""
        roll = self.roll
        lost = "host agent" if roll.agent_lost else "controller" if roll.controller_lost else "ranks' answer"
        print(f"The cluster's {lost} was lost: all of it starts again, what was on the ranks is gone.", file=sys.stderr)
        self.end()
        self.begin()

    def end(self) -> None:
        """Leaves no process and no file."""
        launched, self.launched = self.launched, None
        client, self.client = self.client, None
        try:
            self.connection.send({"kind": "shutdown"})
        except ConnectionError:
            pass  # there is no agent to ask: what is left is killed below
        self.connection.close()
        if launched is not None:
            launched.end(patience=0.5)
        if client is not None:
            client.close(linger=0)

    def losses(self) -> str:
        return ", ".join(f"rank {rank} was lost ({how})" for rank, how in sorted(self.roll.lost.items()))

    def _meet(self, progress: Progress, generation: int) -> None:
        assert self.launched is not None
        log = self.launched.folder.log_tail
        channel = self.launched.channel(START_SECONDS)
        if channel is None:
            raise ClusterError(
                f"the host agent did not call in {START_SECONDS:.0f} s, or ended before it could:\n{log()}"
            )
        self.connection.open(channel)
        roll, words = self.roll, ranks_in_words(self.request.ranks)

        def settled() -> bool:
            return roll.generation >= generation or bool(roll.refusal or roll.lost or roll.agent_lost)

        while not roll.wait_for(settled, 0.2):
            progress.say(f"starting {words}: {'they join their group' if roll.pids else 'importing torch'}")
            if progress.seconds() > START_SECONDS:
                raise ClusterError(f"the ranks were not ready in {START_SECONDS:.0f} s:\n{log()}")
        if roll.refusal is not None:
            raise _refused(roll.refusal)
        if roll.generation < generation:
            raise ClusterError(f"{self.losses() or 'the host agent ended'} during the start:\n{log()}")

    def _hear(self, message: Message) -> None:
        engine = self.roll.engines.get(message.get("rank", -1))
        self.roll.hear(message)
        if message["kind"] == "rank-lost" and self.client is not None and engine is not None:
            from kit.cluster.engines import forget

            forget(self.client, [engine])  # results that wait for this rank fail now


def _refused(refusal: Message) -> Exception:
    if not refusal["asked"]:
        return ClusterError(refusal["detail"])
    return (Unavailable if refusal.get("missing") else ValueError)(refusal["detail"])


def ranks_in_words(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"
