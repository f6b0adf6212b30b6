"""The private folder of one cluster: its socket, ipyparallel's connection files, the ranks' meeting points."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import IO

from kit.clusters.errors import Lacking

_PREFIX = "lockstep-"
OWNER = "owner"  # a file that the kernel keeps locked
_ROOM = 1 << 20  # bytes that connection files, meeting points and logs may take
_SOCKET = "kernel.sock"
_LONGEST_SOCKET_PATH = 100  # the system's limit is 108 bytes
LAST_RESORT = "/tmp"  # where the usual folders will not do


class RunFolder:
    """A new folder of mode 0700, in $XDG_RUNTIME_DIR where that can be had. Raises Lacking with what to do."""

    def __init__(self, parent: str | None = None) -> None:
        self.path = _make(parent)
        self._owner = _lock(self.path)
        _sweep(self.path.parent)
        self.socket = self.path / _SOCKET
        self.profile = self.path / "profile"
        for part in ("log", "security"):
            (self.profile / part).mkdir(parents=True, mode=0o700)

    def log_tail(self, lines: int = 12) -> str:
        """The last lines of what the cluster's processes wrote, for the text of an error."""
        found = []
        for log in sorted((self.profile / "log").glob("*.log")):
            text = log.read_text(errors="replace").strip().splitlines()
            if text:
                found.append("\n".join(text[-lines:]))
        return "\n".join(found)

    def keep_through_exec(self) -> None:
        """It goes on being in use when this process becomes another program."""
        os.set_inheritable(os.dup(self._owner.fileno()), True)

    def remove(self) -> None:
        self._owner.close()
        shutil.rmtree(self.path, ignore_errors=True)


def _lock(folder: Path) -> IO[str]:
    """Marks a folder as in use for as long as this process lives: the system lets go of the lock when it dies."""
    file = open(folder / "starting", "w")  # noqa: SIM115 -- closed by `remove`, or by the end of the process
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    (folder / "starting").rename(folder / OWNER)
    return file


def _sweep(parent: Path) -> None:
    """Removes what kernels left behind that were killed together with their agent."""
    for mark in parent.glob(f"{_PREFIX}*/{OWNER}"):
        try:
            with open(mark) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(mark.parent, ignore_errors=True)
        except OSError:  # somebody's, in use, or gone meanwhile
            continue


def _make(parent: str | None) -> Path:
    usual = [*filter(None, (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir()))]
    refusals: dict[str, str] = {}
    for candidate in [*usual, LAST_RESORT] if parent is None else [parent]:
        made: Path | None = None
        try:
            _need_short_name(candidate)
            made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=candidate))
            _need_room(made)
        except OSError as refused:
            refusals.setdefault(candidate, refused.strerror or str(refused))
            if made is not None:
                shutil.rmtree(made, ignore_errors=True)
        else:
            if parent is None and candidate not in usual:
                print(f"The cluster's files are in {candidate}: {_in_words(refusals)}.", file=sys.stderr)
            return made
    raise Lacking(
        f"no private folder can be made in {' or '.join(refusals)}, because {_in_words(refusals)}",
        "name a folder of your own with a short path and some room, for instance kit.cluster(folder='/tmp')",
    )


def _in_words(refusals: dict[str, str]) -> str:
    return ", ".join(f"{folder!r} cannot be used ({why})" for folder, why in refusals.items())


def _need_short_name(parent: str) -> None:
    if len(os.fsencode(Path(parent) / f"{_PREFIX}12345678" / _SOCKET)) > _LONGEST_SOCKET_PATH:
        raise OSError(errno.ENAMETOOLONG, "it has too long a name for a socket")


def _need_room(folder: Path) -> None:
    """On a full disk a folder can be made and nothing written into it: OSError, as soon as that shows."""
    trial = folder / "room"
    trial.write_bytes(bytes(_ROOM))
    trial.unlink()
