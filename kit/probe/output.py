"""What the learner's thread prints, kept apart from the rest of the process."""

from __future__ import annotations

import io
import sys
import threading
import warnings
from typing import Any, Literal, TextIO

from kit.trace.facts import Output, Place

LIMIT = 200_000  # characters kept between two stops


class Printed:
    """Collects stdout, stderr and warnings of one thread while it is installed; other threads write where they did."""

    def __init__(self, root_file: str = "") -> None:
        """root_file: of the function that runs; what is told of another file names it."""
        self._root_file = root_file
        self._thread = 0
        self._lock = threading.Lock()
        self._parts: list[Output] = []
        self._size = 0
        self._before: tuple[TextIO, TextIO, Any]

    def install(self, thread: int) -> None:
        self._thread = thread
        self._before = (sys.stdout, sys.stderr, warnings.showwarning)
        sys.stdout = _Tee(self, "stdout", sys.stdout)
        sys.stderr = _Tee(self, "stderr", sys.stderr)
        warnings.showwarning = self._warn

    def remove(self) -> None:
        sys.stdout, sys.stderr, warnings.showwarning = self._before

    def take(self) -> tuple[Output, ...]:
        """What was printed since the last call, neighbouring writes to one stream joined."""
        with self._lock:
            parts, self._parts, self._size = self._parts, [], 0
        joined: list[Output] = []
        for part in parts:
            if joined and part.stream == joined[-1].stream != "warning":
                joined[-1] = Output(part.stream, joined[-1].text + part.text)
            else:
                joined.append(part)
        return tuple(joined)

    def mine(self) -> bool:
        return threading.get_ident() == self._thread

    def add(self, stream: Literal["stdout", "stderr", "warning"], text: str) -> None:
        with self._lock:
            if self._size < LIMIT:
                kept = text[: LIMIT - self._size]
                cut = "" if len(kept) == len(text) else "\n[further output left out]\n"
                self._parts.append(Output(stream, kept + cut))
            self._size += len(text)

    def _warn(
        self, message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        if self.mine():
            place = Place(filename, lineno, "").words(with_file=filename != self._root_file)
            self.add("warning", f"{place}: {category.__name__}: {message}")
        else:
            self._before[2](message, category, filename, lineno, file, line)


class _Tee(io.TextIOBase):
    """Stands before a stream and is it in everything but what the learner's thread writes."""

    def __init__(self, printed: Printed, stream: Any, other: TextIO) -> None:
        self._printed = printed
        self._stream = stream
        self._other = other

    def write(self, text: str) -> int:
        if self._printed.mine():
            self._printed.add(self._stream, text)
            return len(text)
        return self._other.write(text)

    def flush(self) -> None:
        if not self._printed.mine():
            self._other.flush()

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._other.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._other.encoding
