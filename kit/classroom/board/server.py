"""The board itself: gathers news from its folder and from TCP, and serves its page to whoever has opened it.

Strangers are not waited for: what they send is read by an event loop, is small, and has seconds to come.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.ioloop import IOLoop, PeriodicCallback
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from kit.classroom.board.mail import DROP_BOX
from kit.classroom.board.news import LARGEST, News, opened, place_of
from kit.classroom.board.page import html
from kit.classroom.board.room import Room

EVERY = 1000.0  # ms between two looks into the folder
PATIENCE = 5.0  # s for a request to come
MOST_FILES = 10_000  # that are looked at
_ALPHABET = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"  # without what is read as something else


def new_code() -> str:
    """Short enough to be typed, too long to be guessed: 59 bits."""
    drawn = "".join(secrets.choice(_ALPHABET) for _ in range(12))
    return "-".join(drawn[k : k + 4] for k in range(0, 12, 4))


class Board:
    """Of one class. folder: where its drop box is made.

    Raises OSError where the folder cannot be had.
    """

    def __init__(self, code: str, folder: Path) -> None:
        self.code, self.room = code, Room()
        self.box = folder / place_of(code)
        self.refused = 0
        self._seen: dict[str, tuple[int, int]] = {}  # by name: when a file was changed, and its number
        self._owners: dict[str, int] = {}  # by learner: the user whose file was there first
        self.box.mkdir(mode=0o700, exist_ok=True)
        if self.box.stat().st_uid != os.getuid() or self.box.is_symlink():
            raise OSError(f"{self.box} is another user's: take another code, or another folder")
        self.box.chmod(DROP_BOX)

    def gather(self) -> None:
        """Hears what is new in the folder; what is no news is counted, and never read again as it is."""
        with os.scandir(self.box) as found:
            entries = [entry for _, entry in zip(range(MOST_FILES), found, strict=False)]
        for entry in entries:
            if entry.name.endswith(".news"):
                with suppress(OSError):  # it is being replaced: the next look finds it
                    self._look(entry)

    def _look(self, entry: os.DirEntry[str]) -> None:
        status = entry.stat(follow_symlinks=False)
        mark = (status.st_mtime_ns, status.st_ino)
        if self._seen.get(entry.name) == mark:
            return
        self._seen[entry.name] = mark
        learner = entry.name.removesuffix(".news")
        if not stat.S_ISREG(status.st_mode) or self._owners.setdefault(learner, status.st_uid) != status.st_uid:
            self.refused += 1
            return
        with open(os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            self.take(file.read(LARGEST + 1), learner)

    def take(self, data: bytes, learner: str | None = None) -> bool:
        """learner: whose file it is. Whether it was news of this class."""
        try:
            news = opened(data, self.code)
            if learner not in (None, news.learner):
                raise ValueError("it is in another's place")
        except ValueError:
            self.refused += 1
            return False
        self.hear(news)
        return True

    def hear(self, news: News) -> None:
        self.room.hear(news, time.monotonic())

    def state(self) -> dict[str, Any]:
        return {**self.room.state(time.monotonic()), "refused": self.refused}


class _Page(RequestHandler):
    def initialize(self, board: Board) -> None:
        self.board = board

    def set_default_headers(self) -> None:
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "no-referrer")


class _Front(_Page):
    def get(self) -> None:
        self.finish(html())


class _State(_Page):
    def get(self) -> None:
        self.finish(json.dumps(self.board.state()))


class _News(_Page):
    def post(self) -> None:
        if not self.board.take(self.request.body):
            self.set_status(403, "this is not news of its class")
        self.finish()


def serve(
    board: Board, listen: tuple[str, int] | None, port: int, ready: Callable[[str, str], None], gathers: bool = True
) -> None:
    """Until it is interrupted. ready(url, address) is called when it can be opened; address: where it takes news by
    TCP, or ''. listen: (host, port) for that; port: of the page, on this machine alone, 0: any.

    Raises OSError for a port that cannot be had.
    """
    key = secrets.token_urlsafe(16)  # other users of this machine reach the port, too
    limits: dict[str, Any] = {
        "max_body_size": LARGEST,
        "max_header_size": 8192,
        "body_timeout": PATIENCE,
        "idle_connection_timeout": PATIENCE,
    }
    own = {"board": board}
    pages = Application([(f"/{key}/", _Front, own), (f"/{key}/state", _State, own)], log_function=_silent)
    sockets = bind_sockets(port, "127.0.0.1")
    front = HTTPServer(pages, **limits)
    front.add_sockets(sockets)
    address = ""
    if listen is not None:
        heard = bind_sockets(listen[1], listen[0])
        HTTPServer(Application([("/news", _News, own)], log_function=_silent), **limits).add_sockets(heard)
        address = f"{listen[0]}:{heard[0].getsockname()[1]}"
    if gathers:
        board.gather()
        PeriodicCallback(board.gather, EVERY).start()
    IOLoop.current().add_callback(ready, f"http://127.0.0.1:{sockets[0].getsockname()[1]}/{key}/", address)
    IOLoop.current().start()


def _silent(handler: RequestHandler) -> None:
    """Requests are no news to whoever looks at the terminal."""
