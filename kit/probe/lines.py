"""Stopping before lines: what a motion asks for, and the line tracer that obeys it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any

from kit.probe.blackbox import Blackbox
from kit.probe.code import Code
from kit.probe.torch_private import compiles, not_compiled, not_compiled_itself
from kit.protocol.messages import How

# What the learner's code forks, a DataLoader's worker for instance, is no rank: nobody would ever let it go on.
os.register_at_fork(after_in_child=partial(sys.settrace, None))


@dataclass(frozen=True)
class Motion:
    """How far a rank may run. Frames are those of the stop that the motion began at, outermost first."""

    how: How
    line: int = 0
    file: str | None = None
    stack: tuple[FrameType, ...] = field(default=(), repr=False)

    def ends_at(self, frame: FrameType, code: Code) -> bool:
        """Whether the rank stops before the line that `frame` is about to run."""
        file = frame.f_code.co_filename
        match self.how:
            case "step":
                here = self.stack[-1].f_code.co_filename if self.stack else None
                return code.is_foreground(file) or file == here
            case "over":
                return not self.stack or any(frame is known for known in self.stack)
            case "out":
                return any(frame is known for known in self.stack[:-1])
            case "into":
                return True
            case "to_line":
                return file == (self.file or code.root_file) and code.line(file, frame.f_lineno) == self.line
            case _:
                return False


class Lines:
    """A line tracer for one thread; `at_stop(frame)` is called in it where the current motion ends, `at_end(frame)`
    as the outermost function returns.
    """

    def __init__(
        self,
        code: Code,
        blackbox: Blackbox,
        motion: Callable[[], Motion],
        at_stop: Callable[[FrameType], None],
        at_end: Callable[[FrameType], None],
    ):
        self._code = code
        self._blackbox = blackbox
        self._motion = motion
        self._at_stop = at_stop
        self._at_end = at_end
        self._outermost: FrameType | None = None
        self._last: tuple[FrameType, int] | None = None  # where the last line event was

    def start(self) -> None:
        sys.settrace(self._on_call)

    def stop(self) -> None:
        sys.settrace(None)
        self._outermost = self._last = None  # a frame holds all that is in its scope

    @not_compiled_itself
    def _on_call(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        if compiles() is not None:  # a compiled function is one stop, whatever lines it is made of
            return None
        if not self._code.is_stepped(frame):
            return None
        if self._outermost is None:
            self._outermost = frame
        return self._on_line

    @not_compiled
    def _on_line(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        if event == "line":
            line = self._code.line(frame.f_code.co_filename, frame.f_lineno)
            again = self._code.is_long(frame.f_code.co_filename, line) and self._last == (frame, line)
            self._last = (frame, line)
            self._blackbox.at_line(line)
            if not again and self._motion().ends_at(frame, self._code):
                self._at_stop(frame)
        elif event == "return":
            self._last = None
            if frame is self._outermost:
                self._at_end(frame)
        return self._on_line
