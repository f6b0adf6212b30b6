"""How much memory there is for this process: the host's, or less where a container or a batch job sets a limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def memory(root: Path = Path("/")) -> tuple[int, int]:
    """(all, available) bytes. `root`: where proc and sys are looked for."""
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
    groups = _text(root / "proc/self/cgroup").splitlines()
    for line in groups:
        _, kinds, path = line.split(":", 2)
        if kinds == "":
            base, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in kinds.split(","):
            base = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        # inside a container the group's own path may not be there, while its root is the container's
        for folder in (base / path.lstrip("/"), *(base / path.lstrip("/")).parents):
            if base not in (folder, *folder.parents):
                break
            limit, used = _text(folder / names[0]).strip(), _text(folder / names[1]).strip()
            if limit.isdigit() and used.isdigit():
                yield int(limit), int(used) - _of(_text(folder / "memory.stat"), names[2])


def _of(stat: str, name: str) -> int:
    return next((int(line.split()[1]) for line in stat.splitlines() if line.split()[:1] == [name]), 0)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # another kind of system, or not for us to see
        return ""
