"""The agent's loop: everything it will ever wait for, in one selector."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import time
from typing import Any

from kit.cluster.crew import Change, Crew, Member
from kit.cluster.mailbox import Mailbox
from kit.cluster.processes import Process, adopt_orphans
from kit.cluster.referee import Referee
from kit.probe.wire import Message

Deliveries = list[tuple[int | str, Message]]


class Loop:
    """Runs until the kernel says 'shutdown' or is gone; then nothing of the cluster is left on this host."""

    def __init__(self, kernel: Mailbox, crew: Crew, kernel_pid: int, controller_pid: int) -> None:
        self._kernel = kernel
        self._crew = crew
        self._selector = selectors.DefaultSelector()
        self._kernel_process = _process(kernel_pid)
        self._controller = _process(controller_pid)
        self._waking, self._wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._awaited: set[int] = set()  # ranks that have not said 'ready' since the reset
        self._referee: Referee

    def run(self) -> None:
        adopt_orphans()
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, lambda number, frame: self._end())
        if self._kernel_process is None:
            self._end()
        self._watch(self._waking, self._children_changed)
        self._watch(self._kernel_process, self._end)
        if self._controller is None:
            self._post("controller-lost")
        else:
            self._watch(self._controller, self._controller_lost)
        self._selector.register(self._kernel, selectors.EVENT_READ, self._hear_kernel)
        self._fork()
        while True:
            self._turn()

    def _turn(self) -> None:
        self._want_writes()
        for key, events in self._selector.select(self._patience()):
            if self._selector.get_map().get(key.fd) is not key:
                continue  # an earlier event of this turn let go of it
            if events & selectors.EVENT_WRITE:
                key.fileobj.flush()  # type: ignore[union-attr]
            if events & selectors.EVENT_READ:
                key.data()
        self._deliver(self._referee.tick(time.monotonic_ns()))

    def _patience(self) -> float | None:
        deadline = self._referee.next_deadline()
        return None if deadline is None else max(0.0, (deadline - time.monotonic_ns()) / 1e9)

    def _watch(self, thing: Any, react: Any) -> None:
        self._selector.register(thing, selectors.EVENT_READ, react)

    def _want_writes(self) -> None:
        """Asks the selector about writing just for those who could not take all that was sent to them."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, Mailbox):
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if key.fileobj.backlog else 0)
                if events != key.events:
                    self._selector.modify(key.fileobj, events, key.data)

    # ranks

    def _fork(self) -> None:
        self._crew.fork(self._descriptors())
        self._post("forked", pids=tuple(member.pid for member in self._crew.members))
        self._referee = Referee(self._crew.world, self._crew.blackbox)
        self._awaited = set(range(self._crew.world))
        for member in self._crew.members:
            self._watch(member.mailbox, lambda member=member: self._hear_rank(member))

    def _descriptors(self) -> list[int]:
        """The agent's own, which nobody that it forks may keep."""
        return [*(key.fd for key in self._selector.get_map().values()), self._wakeup, self._selector.fileno()]

    def _hear_rank(self, member: Member) -> bool:
        """Handles what has come from a rank; True when there was something."""
        try:
            messages = member.mailbox.pump()
        except EOFError:
            self._let_go(member)
            return False
        for message in messages:
            self._heard(member, message)
        return bool(messages)

    def _heard(self, member: Member, message: Message) -> None:
        kind = message["kind"]
        if kind in ("ready", "engine"):
            self._kernel.post({**message, "generation": self._crew.generation})
            if kind == "ready":
                self._ready(member)
        elif kind == "loads":
            self._crew.used.add(message["module"])
        else:
            self._deliver(self._referee.from_rank(member.rank, message))

    def _ready(self, member: Member) -> None:
        self._awaited.discard(member.rank)
        if not self._awaited:
            self._post("reset-done")

    def _let_go(self, member: Member) -> None:
        if member.heard:
            member.heard = False
            self._selector.unregister(member.mailbox)
            member.mailbox.close()

    def _children_changed(self) -> None:
        os.read(self._waking, 4096)
        for change in list(self._crew.changes()):
            self._report(change)

    def _report(self, change: Change) -> None:
        member = change.member
        if change.kind == "lost":
            while member.heard and self._hear_rank(member):
                continue  # its last words first
            self._let_go(member)
            self._deliver(self._referee.lost(member.rank, change.detail))
        elif change.kind == "stopped":
            self._deliver(self._referee.stopped(member.rank, change.detail))
        else:
            self._deliver(self._referee.continued(member.rank))
        self._post(f"rank-{change.kind}", rank=member.rank, detail=change.detail)

    def _deliver(self, deliveries: Deliveries) -> None:
        for destination, message in deliveries:
            if destination == "kernel":
                self._kernel.post(message)
            elif self._crew.members[int(destination)].heard:
                self._crew.members[int(destination)].mailbox.post(message)

    # the kernel and the controller

    def _post(self, kind: str, **more: Any) -> None:
        self._kernel.post({"kind": kind, "generation": self._crew.generation, **more})

    def _hear_kernel(self) -> None:
        try:
            messages = self._kernel.pump()
        except EOFError:
            self._end()
        for message in messages:
            if message["kind"] == "reset":
                self._crew.used.update(message.get("preload", ()))
                self._reset()
            elif message["kind"] == "threads":
                self._crew.fork_threads(message["line"], self._descriptors())
            elif message["kind"] == "shutdown":
                self._end()
            else:
                self._deliver(self._referee.from_kernel(message))

    def _reset(self) -> None:
        self._crew.kill()
        for member in self._crew.members:
            self._let_go(member)
        self._fork()

    def _controller_lost(self) -> None:
        if self._controller is not None:
            self._selector.unregister(self._controller)
            self._controller.close()
            self._controller = None
        self._post("controller-lost")

    def _end(self) -> None:
        """Ends ranks, controller and this process, at once and by number."""
        self._crew.kill()
        if self._controller is not None:
            self._controller.kill()
        shutil.rmtree(self._crew.settings.folder, ignore_errors=True)
        os._exit(0)


def _process(pid: int) -> Process | None:
    try:
        return Process(pid)
    except ProcessLookupError:
        return None
