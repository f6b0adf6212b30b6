"""The ranks of one host: forked, watched from outside, killed by number."""

from __future__ import annotations

import gc
import mmap
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kit.clusters.devices import Plan
from kit.clusters.host.preload import preload_used
from kit.clusters.host.rank_process import HELD, RankConfig, rank_main
from kit.clusters.processes import children, how_it_ended, signal_name
from kit.clusters.request import Settings
from kit.probe import blackbox
from kit.protocol.messages import FromRank, ProcessNews, RankLost, RankResumed, RankSuspended, ToRank
from kit.protocol.wire import Mailbox


@dataclass(slots=True)
class Member:
    rank: int
    pid: int
    mailbox: Mailbox[FromRank, ToRank]
    alive: bool = True
    heard: bool = True  # its line is open


class RankPool:
    """All ranks of the current generation."""

    def __init__(self, plan: Plan, settings: Settings) -> None:
        self.plan = plan
        self.settings = settings
        self.generation = settings.first_generation - 1
        self.members: list[Member] = []
        self.used: set[str] = set()  # modules that ranks have loaded and the next generation shares
        self.blackbox: mmap.mmap

    @property
    def world(self) -> int:
        return len(self.plan.devices)

    def fork(self, not_theirs: list[int]) -> None:
        """Forks a new generation of ranks. `not_theirs`: descriptors of the agent that they must not keep."""
        self.generation += 1
        self.blackbox = blackbox.create(self.world)
        self.members = []
        agent = os.getpid()
        preload_used(self.used)
        _look()
        for rank in range(self.world):
            ours, theirs = socket.socketpair()
            config = RankConfig(
                rank=rank,
                world=self.world,
                local_rank=rank,
                local_world=self.world,
                device=self.plan.devices[rank],
                backend=self.plan.backend,
                generation=self.generation,
                settings=self.settings,
            )
            others = (member.mailbox.fileno() for member in self.members if member.heard)
            inherited = [*not_theirs, ours.fileno(), *others]
            pid = _fork(rank_main, config, theirs, self.blackbox, inherited, agent)
            theirs.close()
            self.members.append(Member(rank, pid, Mailbox(ours)))

    def fork_threads(self, line: str, not_theirs: list[int]) -> None:
        """Forks a process whose threads are ranks, for one run; the kernel awaits it at the socket `line`."""
        _fork(_threads_main, line, self.settings, not_theirs, os.getpid())

    def changes(self) -> Iterator[tuple[Member, ProcessNews]]:
        """What has become of the ranks since the last call, without waiting."""
        for member in self.members:
            while member.alive:
                pid, status = os.waitpid(member.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
                if pid == 0:
                    break
                if os.WIFSTOPPED(status):
                    how = f"stopped by {signal_name(os.WSTOPSIG(status))}"
                    yield member, RankSuspended(self.generation, member.rank, how)
                elif os.WIFCONTINUED(status):
                    yield member, RankResumed(self.generation, member.rank)
                else:
                    member.alive = False
                    yield member, RankLost(self.generation, member.rank, how_it_ended(status))
        self._reap_adopted()

    def _reap_adopted(self) -> None:
        """Lets go of what has ended and is no rank: what ranks started and left behind, processes of threads."""
        ranks = {member.pid for member in self.members if member.alive}
        for pid in set(children(os.getpid())) - ranks:
            os.waitpid(pid, os.WNOHANG)

    def kill(self) -> None:
        """Kills and reaps every rank that is left, then whatever the ranks had started themselves.

        A child keeps its number until it is reaped here, so none is hit by mistake.
        """
        while living := children(os.getpid()):
            for pid in living:
                os.kill(pid, signal.SIGKILL)
            for pid in living:
                os.waitpid(pid, 0)
        for member in self.members:
            member.alive = False


def _look() -> None:
    from kit.probe import slate  # with torch, which the agent imports when it is ready to

    slate.look()


def _threads_main(*arguments: Any) -> None:
    from kit.clusters.host.threads import threads_main  # which is imported only where a kernel asks for it

    threads_main(*arguments)


def _fork(main: Callable[..., None], *arguments: Any) -> int:
    """Forks a process that runs `main(*arguments)` and never returns into the agent's code; its number.

    The agent's signals are held back until each side has its own handlers.
    """
    gc.freeze()  # the collector would otherwise touch, and so copy, every page that is shared
    sys.stdout.flush()
    sys.stderr.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
        return pid
    code = 1
    try:
        main(*arguments)
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
