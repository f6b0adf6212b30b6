"""What processes hold together: each page counted once, memory files whole, whether they are mapped or not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_OWN = re.compile(r"^Pss_(?:Anon|File):\s+(\d+)", re.MULTILINE)
_MAPPED = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) \S+ (\d+)\s+/memfd:", re.MULTILINE)


def held(pids: Iterable[int]) -> int:
    """Bytes."""
    total, files = 0, dict[int, int]()
    for pid in pids:
        try:
            total += 1024 * sum(map(int, _OWN.findall(Path(f"/proc/{pid}/smaps_rollup").read_text())))
            for file, size in memory_files(pid):
                files[file] = max(files.get(file, 0), size)
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
    return total + sum(files.values())


def memory_files(pid: int) -> Iterator[tuple[int, int]]:
    """(inode, bytes) of the memory files that a process has open or mapped."""
    folder = Path("/proc") / str(pid)
    for first, last, offset, inode in _MAPPED.findall((folder / "maps").read_text()):
        yield int(inode), int(offset, 16) + int(last, 16) - int(first, 16)
    for entry in (folder / "fd").iterdir():
        try:
            if str(entry.readlink()).startswith("/memfd:"):
                yield entry.stat().st_ino, entry.stat().st_size
        except FileNotFoundError:  # closed meanwhile
            continue
