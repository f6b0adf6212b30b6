"""Looking at processes from outside, for tests of life and death."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psutil

M = TypeVar("M")
LIMIT = 60.0  # s; on a busy machine all takes its time


def alive(pids: Iterable[int]) -> list[int]:
    """Those that still run; a process that ended and waits to be reaped does not."""
    found = []
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
        except psutil.NoSuchProcess:
            continue
    return found


def until(truth: Callable[[], Any], seconds: float = LIMIT) -> Any:
    """Waits for something to become true; the last value it had."""
    deadline = time.monotonic() + seconds
    while not (value := truth()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return value


@contextmanager
def once_there(sign: Path, act: Callable[..., object], *args: Any) -> Iterator[None]:
    """Acts, in another thread, as soon as there is the file `sign`."""
    thread = threading.Thread(target=lambda: until(sign.exists) and act(*args))
    thread.start()
    yield
    thread.join()


class Listener:
    """Everything a connection told its subscribers."""

    def __init__(self, connection: Any) -> None:
        self.heard: list[Any] = []
        self.stop = connection.subscribe(self.heard.append)

    def wait(self, kind: type[M], seconds: float = LIMIT) -> M:
        """The first message of a kind."""
        found: M = until(lambda: next((message for message in self.heard if isinstance(message, kind)), None), seconds)
        assert found, f"no {kind.__name__} among {self.heard}"
        return found
