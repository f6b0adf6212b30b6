"""How news gets to the board: left in a folder that both reach, or sent over TCP."""

from __future__ import annotations

import os
import re
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Protocol

from kit.classroom.board.news import place_of

WAIT = 3.0  # s for the board's answer
DROP_BOX = (
    0o1733  # who reaches it may leave news there; only its owner sees whose there is, and only they change theirs
)


class Mail(Protocol):
    def send(self, learner: str, data: bytes) -> None:
        """Raises OSError where it does not get there; the text says why."""


class Folder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def send(self, learner: str, data: bytes) -> None:
        draft = self.folder / f".{learner}"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644), "wb") as file:
            os.fchmod(file.fileno(), 0o644)  # the board may be another user's
            file.write(data)
        draft.replace(self.folder / f"{learner}.news")


class Server:
    def __init__(self, address: str) -> None:
        self.address = f"http://{address}/news"

    def send(self, learner: str, data: bytes) -> None:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the board is near, and no proxy's
        try:
            with direct.open(urllib.request.Request(self.address, data), timeout=WAIT):
                return
        except urllib.error.HTTPError as refused:
            raise OSError(f"the board refused it: {refused.reason}") from refused


def mail_to(at: str | os.PathLike[str] | None, code: str) -> Mail:
    """at: a folder, or 'host:port'; None: of this machine. ValueError where there is no board of this code."""
    if at is not None and re.fullmatch(r"[\w.\-]+:\d+|\[[0-9a-fA-F:]+\]:\d+", str(at)):
        return Server(str(at))
    folder = Path(tempfile.gettempdir() if at is None else at).expanduser() / place_of(code)
    if not folder.is_dir():
        where = "on this machine" if at is None else f"in {at}"
        raise ValueError(
            f"there is no board of the code {code!r} {where}: copy the whole line that `lockstep board` shows, or ask"
            " who shows it to you"
        )
    return Folder(folder)
