"""What this system says of itself: its memory, and what its commands print."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

Ask = Callable[[tuple[str, ...]], str | None]  # runs a command: what it printed, None when it is absent or fails


def ask(command: tuple[str, ...], seconds: float = 4.0) -> str | None:
    """What a command prints; None when it is not here, fails, or does not answer in time."""
    if shutil.which(command[0]) is None:
        return None
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def own_processes() -> Iterator[tuple[int, list[str]]]:
    """(process id, command line) of this user's processes."""
    for process in psutil.process_iter(["uids", "cmdline"]):
        uids = process.info["uids"]
        if uids is not None and uids.real == os.getuid():
            yield process.pid, process.info["cmdline"] or []


def memory(root: Path = Path("/")) -> tuple[int, int]:
    """(all, available) bytes for this process: the host's, or less where a container or a batch job sets a limit.

    root: where proc and sys are looked for.
    """
    found = {}
    with open(root / "proc/meminfo") as lines:
        for line in lines:
            name, rest = line.split(":", 1)
            found[name] = int(rest.split()[0]) * 1024
    total, available = found["MemTotal"], found["MemAvailable"]
    for limit, used in _limits(root):
        if limit < found["MemTotal"]:
            total, available = min(total, limit), min(available, max(0, limit - used))
    return total, available


def _limits(root: Path) -> Iterator[tuple[int, int]]:
    """(limit, used) bytes of every control group this process is in, its ancestors included.

    A file cache that can be dropped does not count as used.
    """
    newer = ("memory.max", "memory.current", "inactive_file")
    older = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    for folder, is_new in _control_groups(root, "memory"):
        most, now, cache = newer if is_new else older
        limit, used = read(folder / most).strip(), read(folder / now).strip()
        if limit.isdigit() and used.isdigit():
            yield int(limit), int(used) - _of(read(folder / "memory.stat"), cache)


def tasks(root: Path = Path("/")) -> tuple[int, int] | None:
    """(most, used) processes and threads of the tightest limit on this process: its own user's, or a control group's,
    as of a login node. None where there is none.
    """
    found = []
    for folder, _ in _control_groups(root, "pids"):
        limit, used = read(folder / "pids.max").strip(), read(folder / "pids.current").strip()
        if limit.isdigit() and used.isdigit():
            found.append((int(limit), int(used)))
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if most != resource.RLIM_INFINITY and os.getuid():  # it does not hold for root
        found.append((most, sum(_threads(pid) for pid, _ in own_processes())))
    return min(found, key=lambda one: one[0] - one[1]) if found else None


def _threads(pid: int) -> int:
    try:
        return int(psutil.Process(pid).num_threads())
    except psutil.Error:  # it has ended meanwhile
        return 0


def _control_groups(root: Path, kind: str) -> Iterator[tuple[Path, bool]]:
    """Folders of the control groups for `kind` that this process is in, its own and their ancestors; whether they are
    of the newer hierarchy, which has one for all kinds.
    """
    for line in read(root / "proc/self/cgroup").splitlines():
        _, kinds, path = line.split(":", 2)
        if kinds and kind not in kinds.split(","):
            continue
        base = root / "sys/fs/cgroup" / kind if kinds else root / "sys/fs/cgroup"
        # inside a container the group's own path may not be there, while its root is the container's
        for folder in (base / path.lstrip("/"), *(base / path.lstrip("/")).parents):
            if base not in (folder, *folder.parents):
                break
            yield folder, not kinds


def _of(stat: str, name: str) -> int:
    return next((int(line.split()[1]) for line in stat.splitlines() if line.split()[:1] == [name]), 0)


def read(path: Path) -> str:
    """The text of a file, '' where it cannot be read: it belongs to another kind of system, or is not for us to see."""
    try:
        return path.read_text()
    except OSError:
        return ""
