"""The host agent's loop: everything it will ever wait for, in one selector.

It holds the coordinator, and touches it in `_decide` and `_deliver` alone, through messages: between processes a
connection would stand there.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import time
from collections.abc import Callable
from typing import Any, NoReturn

from kit.clusters.coordinator.coordinator import Coordinator
from kit.clusters.coordinator.run import Delivery, ForKernel, ForRank
from kit.clusters.host.rank_pool import Member, RankPool
from kit.clusters.processes import Process, adopt_orphans
from kit.probe.blackbox import BlackboxReader
from kit.protocol.messages import (
    AllReady,
    ControllerLost,
    Forked,
    ForkThreads,
    Intruded,
    Loads,
    ProcessNews,
    RankLost,
    Ready,
    Refused,
    Registered,
    Reset,
    Shutdown,
    ToCoordinator,
    ToHost,
    ToKernel,
)
from kit.protocol.wire import Letter, Mailbox

GROUPS = 8  # that are made, one after the other, where another user of the host gets into each


class Loop:
    """Runs until the kernel says so or is gone; then nothing of the cluster is left on this host."""

    def __init__(self, kernel: Mailbox[ToHost, ToKernel], pool: RankPool, kernel_pid: int, controller_pid: int) -> None:
        self._kernel = kernel
        self._pool = pool
        self._selector = selectors.DefaultSelector()
        self._kernel_process = Process.of(kernel_pid)
        self._controller = Process.of(controller_pid)
        self._waking, self._wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._awaited: set[int] = set()  # ranks that are not ready since they were forked
        self._intruded = 0  # groups that were given up since one stood
        self._coordinator: Coordinator

    def run(self) -> NoReturn:
        adopt_orphans()
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, lambda number, frame: self._end())
        if self._kernel_process is None:
            self._end()
        self._watch(self._waking, self._children_changed)
        self._watch(self._kernel_process, self._end)
        if self._controller is None:
            self._kernel.post(ControllerLost())
        else:
            self._watch(self._controller, self._controller_lost)
        self._watch(self._kernel, self._hear_kernel)
        self._fork()
        while True:
            self._turn()

    def _turn(self) -> None:
        self._send()
        for key, events in self._selector.select(self._patience()):
            if self._selector.get_map().get(key.fd) is not key:
                continue  # an earlier event of this turn let go of it
            if events & selectors.EVENT_READ:
                key.data()
        self._deliver(self._coordinator.tick(time.monotonic_ns()))

    def _patience(self) -> float | None:
        deadline = self._coordinator.next_deadline
        return None if deadline is None else max(0.0, (deadline - time.monotonic_ns()) / 1e9)

    def _watch(self, thing: Any, react: Callable[[], object]) -> None:
        self._selector.register(thing, selectors.EVENT_READ, react)

    def _send(self) -> None:
        """Sends what the last turn left; the selector says when those who could not take all of it can take more."""
        for key in list(self._selector.get_map().values()):
            mailbox = key.fileobj
            if isinstance(mailbox, Mailbox) and (mailbox.backlog or key.events != selectors.EVENT_READ):
                mailbox.flush()
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if mailbox.backlog else 0)
                if events != key.events:
                    self._selector.modify(mailbox, events, key.data)

    # the coordinator

    def _decide(self, message: ToCoordinator, letter: Letter | None = None) -> None:
        self._deliver(self._coordinator.hear(message, time.monotonic_ns()), message, letter)

    def _deliver(
        self, deliveries: list[Delivery], heard: ToCoordinator | None = None, letter: Letter | None = None
    ) -> None:
        """letter: as which `heard` came; where it goes on to the kernel it is not packed again."""
        for delivery in deliveries:
            match delivery:
                case ForKernel(message):
                    if letter is not None and message is heard:
                        self._kernel.relay(letter)
                    else:
                        self._kernel.post(message)
                case ForRank(rank, order):
                    member = self._pool.members[rank]
                    if member.heard:
                        member.mailbox.post(order)

    # ranks

    def _fork(self) -> None:
        self._pool.fork(self._descriptors())
        self._kernel.post(Forked(self._pool.generation, tuple(member.pid for member in self._pool.members)))
        self._coordinator = Coordinator(self._pool.world, BlackboxReader(self._pool.blackbox))
        self._awaited = set(range(self._pool.world))
        for member in self._pool.members:
            self._watch(member.mailbox, lambda member=member: self._hear_rank(member))  # type: ignore[misc]

    def _descriptors(self) -> list[int]:
        """The host's own, which nobody that it forks may keep."""
        return [*(key.fd for key in self._selector.get_map().values()), self._wakeup, self._selector.fileno()]

    def _hear_rank(self, member: Member) -> bool:
        """Handles what has come from a rank; True when there was something."""
        try:
            letters = member.mailbox.pump_letters()
        except EOFError:
            self._let_go(member)
            return False
        for message, letter in letters:
            match message:
                case Ready():
                    self._awaited.discard(member.rank)
                    if not self._awaited:
                        self._intruded = 0
                        self._kernel.post(AllReady(self._pool.generation))
                case Intruded(sentence=sentence):
                    self._meet_again(sentence)
                    return False
                case Registered():
                    self._kernel.relay(letter)
                case Loads(module):
                    self._pool.used.add(module)
                case _:
                    self._decide(message, letter)
        return bool(letters)

    def _meet_again(self, sentence: str) -> None:
        """Has fresh ranks meet at other ports: whoever called at the right moment must be as quick once more."""
        self._intruded += 1
        if self._intruded < GROUPS:
            self._reset()
        else:
            self._intruded = 0
            self._kernel.post(Refused("failure", f"{sentence} So it went {GROUPS} times."))

    def _let_go(self, member: Member) -> None:
        if member.heard:
            member.heard = False
            self._selector.unregister(member.mailbox)
            member.mailbox.close()

    def _children_changed(self) -> None:
        os.read(self._waking, 4096)
        for member, news in list(self._pool.changes()):
            self._process_changed(member, news)

    def _process_changed(self, member: Member, news: ProcessNews) -> None:
        if isinstance(news, RankLost):
            while member.heard and self._hear_rank(member):
                continue  # its last words first
            self._let_go(member)
        if news.generation == self._pool.generation:  # its last words may have led to another
            self._decide(news)
            self._kernel.post(news)

    # the kernel and the controller

    def _hear_kernel(self) -> None:
        try:
            messages = self._kernel.pump()
        except EOFError:
            self._end()
        for message in messages:
            match message:
                case Reset(preload):
                    self._pool.used.update(preload)
                    self._reset()
                case ForkThreads(line):
                    self._pool.fork_threads(line, self._descriptors())
                case Shutdown():
                    self._end()
                case _:
                    self._decide(message)

    def _reset(self) -> None:
        self._pool.kill()
        for member in self._pool.members:
            self._let_go(member)
        self._fork()

    def _controller_lost(self) -> None:
        if self._controller is not None:
            self._selector.unregister(self._controller)
            self._controller.close()
            self._controller = None
        self._kernel.post(ControllerLost())

    def _end(self) -> NoReturn:
        """Ends ranks, controller and this process, at once and by number."""
        self._pool.kill()
        if self._controller is not None:
            self._controller.kill()
        shutil.rmtree(self._pool.settings.folder, ignore_errors=True)
        os._exit(0)
