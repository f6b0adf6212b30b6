"""Processes held by a descriptor: a number that was given to another process since can never be hit by mistake.

Linux only (pidfd, 5.3 and later). Standard library only, since the host agent and the controller import it first.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import socket
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def die_with_parent(parent: int) -> None:
    """Asks the system to kill the calling process as soon as process `parent`, which forked it, is gone."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it went between the fork and the line above
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Makes this process the new parent of what its children leave behind, so that `children` finds it."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def keep_to_itself(closed: bool) -> None:
    """Whether others of the same user, who have no rights over all, are kept from looking into this process."""
    _prctl(_PR_SET_DUMPABLE, 0 if closed else 1)


def raise_open_files(enough: int = 1 << 16) -> None:
    """Lets this process, and those it forks, have more files open than a shell usually grants them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = enough if hard == resource.RLIM_INFINITY else min(hard, enough)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def peer(line: socket.socket) -> int:
    """The number of the process on the other end of a unix socket, as the system knows it."""
    credentials = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[:4], sys.byteorder)


def children(pid: int) -> list[int]:
    """Process ids of a process's children, adopted ones included; [] when it is gone itself."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                found += [int(child) for child in file.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        return found
    return found


class Process:
    """A process that may end at any time; `ProcessLookupError` when there is none of that number to begin with."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The process of that number, None when it has ended already."""
        try:
            return cls(pid)
        except ProcessLookupError:
            return None

    def fileno(self) -> int:
        """Readable once the process has ended: for selectors."""
        return self._descriptor

    def wait(self, seconds: float) -> bool:
        """Waits for the end, `seconds` at most; True when it has ended."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(max(0, round(seconds * 1000))))

    def ended(self) -> bool:
        return self.wait(0)

    def kill(self) -> None:
        """SIGKILL; a process that has ended already is no error."""
        try:
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
        except ProcessLookupError:
            return

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def how_it_ended(status: int) -> str:
    """A wait status in words: 'killed by SIGKILL', 'exited with code 3'."""
    if os.WIFSIGNALED(status):
        return f"killed by {signal_name(os.WTERMSIG(status))}"
    return f"exited with code {os.waitstatus_to_exitcode(status)}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no names
        return f"signal {number}"
