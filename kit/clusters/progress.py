"""One line that tells how far a start is: rewritten in place in a terminal, one updating line in a notebook."""

from __future__ import annotations

import html
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO


class Progress:
    """Shows nothing where nobody looks: in a script whose output goes to a file or a pipe."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._began = time.monotonic()
        self._stream = stream or sys.stderr
        self._width = 0
        self._handle: Any = None
        self._in_notebook = in_notebook()

    def seconds(self) -> float:
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        """Replaces the line; the time since the start is appended."""
        self._show(f"{text} · {self.seconds():.1f} s", end="")

    def done(self, text: str) -> None:
        """The last text of the line."""
        self._show(text, end="\n")

    def _show(self, text: str, end: str) -> None:
        if self._in_notebook:
            self._show_in_notebook(text)
        elif self._stream.isatty():
            text = text if end else text[: shutil.get_terminal_size().columns - 1]  # a second line stays for ever
            self._stream.write("\r" + text.ljust(self._width) + end)
            self._stream.flush()
            self._width = len(text)

    def _show_in_notebook(self, text: str) -> None:
        from IPython import display as ipython

        display: Callable[..., Any] = ipython.display
        bundle = {"text/plain": text, "text/html": f"<span class='ls-progress'>{html.escape(text)}</span>"}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)


def in_notebook() -> bool:
    """Whether this process is a kernel that somebody looks at through a front end; imports nothing for it."""
    ipython = sys.modules.get("IPython")
    if ipython is None or not hasattr(ipython, "get_ipython"):
        return False
    return getattr(ipython.get_ipython(), "kernel", None) is not None
