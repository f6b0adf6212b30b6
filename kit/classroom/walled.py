"""What stands behind walls: one process for each rank, in which a learner's code runs, and nobody else's.

The process that is started there forks one for each run and ends all that is left of the run before. A rank's one line
to anybody is that to the broker.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kit.classroom import inert
from kit.classroom.dormant import dormant
from kit.clusters.processes import adopt_orphans, children, die_with_parent, keep_to_itself

if TYPE_CHECKING:
    from kit.classroom.handins import Answer

ORDER = 1 << 16  # bytes of an order at most
NEEDED = ("torch.distributed", "torch.nn.parallel", "numpy.random", "kit.classroom.brokered")


class OnARank:
    """A function that makes that of an answer where it is called, calls it, and gives back what it returned, and its
    arguments as they are then, as bytes.
    """

    def __init__(self, answer: Answer, drive: Callable[..., Any] | None, members: tuple[int, ...]) -> None:
        self._text, self._drive, self._members = (answer.source, answer.file), drive, members
        self.__name__ = answer.function
        self.__wrapped__ = dormant(answer)  # whose source goes with it

    def __call__(self, *arguments: Any) -> bytes:
        from kit.grade.checker import watched

        names: dict[str, Any] = {"__name__": "handed_in"}
        exec(compile(*self._text, "exec", dont_inherit=True), names)
        return inert.encode(watched(names[self.__name__], self._drive, self._members)(*arguments))


def main(rank: int) -> None:
    """Forks the rank when told to, with the line that comes with the order; at every order the one before ends."""
    orders = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    from importlib import import_module

    for name in NEEDED:
        import_module(name)
    adopt_orphans()
    keep_to_itself(True)
    orders.send(json.dumps("ready").encode())
    child = 0
    while True:
        told, lines, _, _ = socket.recv_fds(orders, ORDER, 1)
        status = _end_all(child) if child else 0
        child = 0
        if not told:
            return
        order = json.loads(told)
        if lines:
            for name in order["preload"]:
                import_module(name)
            child = _forked(rank, lines[0], orders)
        orders.send(json.dumps(status).encode())


def _forked(rank: int, line: int, orders: socket.socket) -> int:
    parent = os.getpid()
    child = os.fork()
    if child:
        os.close(line)
        return child
    try:
        os.setsid()
        die_with_parent(parent)
        keep_to_itself(False)
        orders.close()
        from kit.classroom.brokered import live

        live(rank, socket.socket(fileno=line))
    except BaseException:
        traceback.print_exc()
        os._exit(70)
    os._exit(0)


def _end_all(child: int) -> int:
    """Ends everything that this process has forked, and what that has; how the child ended, as `wait` has it."""
    found = 0
    while left := children(os.getpid()):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in left:
            with suppress(ChildProcessError):
                _, status = os.waitpid(pid, 0)
                found = status if pid == child else found
    return found
