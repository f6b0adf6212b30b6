"""The private folder of one cluster: its socket, ipyparallel's connection files, the ranks' meeting points."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

from kit.clusters.errors import Unavailable

_PREFIX = "lockstep-"
OWNER = "owner"  # a file that the kernel keeps locked
_ROOM = 1 << 20  # bytes that connection files, meeting points and logs may take
_LONGEST_SOCKET_PATH = 100  # the system's limit is 108 bytes


class RunFolder:
    """A new folder of mode 0700, in $XDG_RUNTIME_DIR where that can be had. Raises ValueError with what to do."""

    def __init__(self, parent: str | None = None) -> None:
        self.path = _make(parent)
        self._owner = _lock(self.path)
        _sweep(self.path.parent)
        self.socket = self.path / "kernel.sock"
        self.profile = self.path / "profile"
        if len(os.fsencode(self.socket)) > _LONGEST_SOCKET_PATH:
            self.remove()
            raise Unavailable(
                f"the folder {str(self.path.parent)!r} has too long a name for a socket: "
                "name one with a shorter path, for instance kit.cluster(folder='/tmp')"
            )
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
    usual = filter(None, (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir()))
    candidates = list(usual) if parent is None else [parent]
    why: str | None = None
    for candidate in candidates:
        made: Path | None = None
        try:
            made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=candidate))
            _need_room(made)
            return made
        except OSError as refused:
            why = refused.strerror
            if made is not None:
                shutil.rmtree(made, ignore_errors=True)
    raise Unavailable(
        f"no private folder can be made in {' or '.join(candidates)} ({why}): "
        "name a folder of your own with kit.cluster(folder=...)"
    )


def _need_room(folder: Path) -> None:
    """On a full disk a folder can be made and nothing written into it: OSError, as soon as that shows."""
    trial = folder / "room"
    trial.write_bytes(bytes(_ROOM))
    trial.unlink()
