"""ipyparallel's controller, tied to the kernel that asked for it. It serves ipyparallel's own views alone: steps and
records go over `kit.clusters.connection`, past it.

A controller that outlives its kernel would wait for clients for ever, and its heart monitor, a process of its own,
would outlive a controller that is killed. Here both follow at once, whatever else has died.
"""

from __future__ import annotations

import os
import signal
import threading

from kit.clusters.processes import Process, die_with_parent


def main(arguments: list[str]) -> None:
    """`arguments`: the kernel's process id, then what `ipcontroller` takes."""
    kernel = Process.of(int(arguments[0]))
    if kernel is None:
        return
    threading.Thread(target=_follow, args=(kernel,), daemon=True, name="follow the kernel").start()
    controller = os.getpid()
    os.register_at_fork(after_in_child=lambda: die_with_parent(controller))

    from ipyparallel.controller.app import IPController

    IPController.launch_instance(argv=arguments[1:])


def _follow(kernel: Process) -> None:
    while not kernel.wait(3600):
        continue
    os.kill(os.getpid(), signal.SIGKILL)
