"""The processes of one run, told from all others by an environment variable that only they inherited; ended by id."""

from __future__ import annotations

import time

import psutil

MARK = "LOCKSTEP_VERDICTS"


def of_run(mark: str) -> list[psutil.Process]:
    """Every live process that inherited `MARK=mark`: the notebook's kernel, its controller, agent and ranks.

    Parentage would not do: an orphan has another parent, and controllers start sessions of their own.
    """
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue  # gone meanwhile, or another user's
    return found


def wait_gone(mark: str, seconds: float) -> list[psutil.Process]:
    """Give the processes of a run time to go by themselves; those that have not."""
    deadline = time.monotonic() + seconds
    while (left := of_run(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def end(mark: str) -> int:
    """Kill every process of a run, those it forks meanwhile included; how many there were."""
    ended: set[int] = set()
    for _ in range(50):
        left = of_run(mark)
        if not left:
            break
        for process in left:
            ended.add(process.pid)
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, timeout=1.0)
    return len(ended)
