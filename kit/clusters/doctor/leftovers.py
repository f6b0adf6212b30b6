"""Processes of clusters whose kernel is gone; there should be none, since a cluster follows its kernel.

They are recognised by what this package starts them with, never by a name pattern, and belong to this user.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from kit.clusters.doctor.finding import Finding, ok, warning
from kit.clusters.folder import OWNER
from kit.clusters.launcher import BOOT
from kit.clusters.processes import Process
from kit.clusters.system import own_processes
from kit.trace.text import size_text


@dataclass(frozen=True, slots=True)
class Member:
    """A process of some cluster of this user: its agent, a rank, its controller."""

    pid: int
    folder: str  # of the cluster it belongs to
    orphan: bool  # no kernel holds that folder any more

    @property
    def cluster(self) -> str:
        return Path(self.folder).name


def leftovers(members: Iterable[Member] | None = None) -> Finding:
    found = list(members if members is not None else all_members())
    orphans = [member.pid for member in found if member.orphan]
    living = len({member.folder for member in found if not member.orphan})
    running = {0: "no cluster of yours runs", 1: "1 cluster of yours runs"}.get(
        living, f"{living} clusters of yours run"
    )
    if not orphans:
        return ok(f"none; {running}")
    pids = " ".join(map(str, orphans))
    fix = f"End them: lockstep doctor --end-leftovers, or kill -9 {pids}"
    return warning(f"processes {pids} have lost their kernel; {running}", fix)


def shared_memory(folder: Path = Path("/dev/shm"), living: bool | None = None) -> Finding:
    """Segments of nccl's, which takes their names away as soon as both sides have them: what has one still is left of
    processes that were killed before. living: whether a cluster of this user runs, which may be at that very moment.
    """
    busy = any(not member.orphan for member in all_members()) if living is None else living
    found = sorted(path for path in folder.glob("nccl-*") if path.stat().st_uid == os.getuid())
    if not found or busy:
        return ok("a cluster of yours runs" if busy else f"nothing of nccl's was left in {folder}")
    size = size_text(sum(path.stat().st_size for path in found))
    names = " ".join(map(str, found[:3])) + (" ..." if len(found) > 3 else "")
    fix = f"Where no other program of yours uses GPUs now: rm {folder}/nccl-*"
    return warning(f"{names}: {size} that processes left behind which were killed", fix)


def end(members: Iterable[Member] | None = None) -> tuple[int, ...]:
    """Kills what has lost its kernel, each by its number, and returns the numbers."""
    ended = []
    for member in list(members if members is not None else all_members()):
        if not member.orphan:
            continue
        try:
            process = Process(member.pid)
        except ProcessLookupError:
            continue
        # the number is held now: look once more whether it still is what it was
        if folder_of(_command(member.pid)) == member.folder and _orphan(member.pid, member.folder):
            process.kill()
            process.wait(2.0)
            ended.append(member.pid)
        process.close()
    return tuple(ended)


def all_members() -> list[Member]:
    found = ((pid, folder_of(command)) for pid, command in own_processes())
    return [Member(pid, folder, _orphan(pid, folder)) for pid, folder in found if folder is not None]


def folder_of(command: Sequence[str]) -> str | None:
    """The run folder of the cluster that a command line belongs to; None when it is none of ours.

    `python -P .../kit/clusters/boot.py agent FOLDER/agent.json PID` (ranks are forks of it), or
    `... boot.py controller PID --profile-dir=FOLDER/profile ...`.
    """
    boot = next((at for at, word in enumerate(command[:4]) if word.endswith(os.sep + _BOOT)), None)
    if boot is None or len(command) < boot + 4:
        return None
    role, rest = command[boot + 1], command[boot + 2 :]
    if role == "agent":
        return str(Path(rest[0]).parent)
    profile = next((word.partition("=")[2] for word in rest if word.startswith("--profile-dir=")), None)
    return str(Path(profile).parent) if role == "controller" and profile else None


_BOOT = os.path.join("kit", "clusters", Path(BOOT).name)


def _orphan(pid: int, folder: str) -> bool:
    """Whether no kernel stands behind a process: the lock that its kernel keeps on the run folder is free.

    Where that file is gone, because something cleans old files away, only a process that the system has adopted is
    counted: rather one too few than a living one.
    """
    try:
        with open(Path(folder) / OWNER) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return _adopted(pid, folder)
    except OSError:
        return False
    return True


def _adopted(pid: int, folder: str) -> bool:
    """Whether the oldest ancestor that belongs to the same cluster is a child of process 1."""
    while True:
        try:
            parent: int = psutil.Process(pid).ppid()
        except psutil.Error:
            return False
        if folder_of(_command(parent)) != folder:
            return parent == 1
        pid = parent


def _command(pid: int) -> list[str]:
    try:
        words: list[str] = psutil.Process(pid).cmdline()
    except psutil.Error:
        return []
    return words
