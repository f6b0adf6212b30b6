"""Which code belongs to the learner, and where a frame stands in it."""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FrameType
from typing import TypeVar

from kit.probe.own import KIT, is_own_file, source_lines
from kit.resources import reference_label
from kit.trace.facts import Place

OTHER, REFERENCE, OWN = 0, 1, 2
_T = TypeVar("_T")
_INNER = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})


class Code:
    """Sorts files into the learner's own, the kit's reference implementations, and the rest."""

    def __init__(self, sources: dict[str, tuple[str, ...]], root_file: str, stepped: bool = False) -> None:
        """stepped: a person steps through the root file, which is read as a reference also where it is another of
        the kit's.
        """
        self.root_file = root_file
        self._kinds = dict.fromkeys(sources, OWN)
        if stepped and root_file.startswith(KIT):
            self._kinds.setdefault(root_file, REFERENCE)
        if root_file.startswith(
            "<"
        ):  # typed after `python -c` or at a prompt: no text is known of it, and it is stepped
            self._kinds[root_file] = OWN
        self._sources = sources
        self._statements: dict[str, dict[int, int]] = {}
        self._finding = threading.Lock()
        # By instruction, since to find its line takes longer; by the id of its code, since to hash that does, too.
        self._places: dict[int, tuple[CodeType, dict[int, Place]]] = {}

    def kind(self, file: str) -> int:
        kind = self._kinds.get(file)
        return self._found(file, self._kinds, _sorted) if kind is None else kind

    def _starts(self, file: str) -> dict[int, int]:
        """Of its statements, read when they are first asked for: most files of a run no rank stands in."""
        if self.kind(file) == OTHER:
            return {}
        starts = self._statements.get(file)
        return self._found(file, self._statements, self._read) if starts is None else starts

    def _read(self, file: str) -> dict[int, int]:
        lines = self._sources.get(file)
        return statement_starts(source_lines(file) if lines is None else lines)

    def _found(self, file: str, known: dict[str, _T], find: Callable[[str], _T]) -> _T:
        """The rank's own thread and the one that tells of it may both ask; Python 3.11 cannot parse for two at once."""
        tracer = sys.gettrace()
        sys.settrace(None)  # whoever asks may be traced: each call below would ask again, and wait for itself
        try:
            with self._finding:
                if file not in known:
                    known[file] = find(file)
                return known[file]
        finally:
            sys.settrace(tracer)

    def is_stepped(self, frame: FrameType) -> bool:
        """Comprehensions are frames of their own up to Python 3.11; a learner sees one line, not a loop in a loop."""
        code = frame.f_code
        return code.co_name not in _INNER and self.kind(code.co_filename) != OTHER

    def is_foreground(self, file: str) -> bool:
        """The learner's own text, or the file of the function that was stepped."""
        return file == self.root_file or self.kind(file) == OWN

    def line(self, file: str, line: int) -> int:
        """The first line of the simple statement that `line` is in: a call over three lines is one place."""
        return self._starts(file).get(line, line)

    def is_long(self, file: str, line: int) -> bool:
        """Whether the simple statement that begins at `line` goes on over further lines: its events come in several."""
        return line + 1 in self._starts(file)

    def stack(self, frame: FrameType | None) -> list[FrameType]:
        """The stepped frames from the outermost to the one nearest to `frame`."""
        found = []
        while frame is not None:
            if self.is_stepped(frame):
                found.append(frame)
            frame = frame.f_back
        return found[::-1]

    def place_of(self, frame: FrameType) -> Place:
        code = frame.f_code
        known = self._places.get(id(code))
        if known is None:
            known = self._places[id(code)] = (code, {})
        place = known[1].get(frame.f_lasti)
        if place is None:
            file = code.co_filename
            place = known[1][frame.f_lasti] = Place(file, self.line(file, frame.f_lineno), code.co_name)
        return place

    def place(self, frame: FrameType | None) -> Place | None:
        """Where a person would say the frame stands: the innermost line in the foreground, else in the references."""
        fallback = None
        kinds = self._kinds  # looked up here directly: this runs at every operation of a recorded function
        while frame is not None:
            code = frame.f_code
            kind = kinds.get(code.co_filename)
            if kind != OTHER and self.is_stepped(frame):
                if kind == OWN or self.is_foreground(code.co_filename):
                    return self.place_of(frame)
                fallback = fallback or frame
            frame = frame.f_back
        return self.place_of(fallback) if fallback is not None else None


def _sorted(file: str) -> int:
    return REFERENCE if reference_label(file) is not None else OWN if is_own_file(file) else OTHER


@lru_cache(maxsize=64)  # the files of one run are mostly those of the one before
def statement_starts(lines: tuple[str, ...]) -> dict[int, int]:
    """Maps every line of a simple statement that spans several lines to the statement's first line."""
    try:
        tree = ast.parse("\n".join(lines))
    except SyntaxError:  # a cell with magics: every line stands for itself
        return {}
    starts: dict[int, int] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt) or hasattr(node, "body") or node.end_lineno is None:
            continue
        for line in range(node.lineno + 1, node.end_lineno + 1):
            starts[line] = node.lineno
    return starts
