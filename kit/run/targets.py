"""Which line a rank can stop before, for a line that a person points at."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from types import CodeType

from kit.probe.code import statement_starts


def line_to_stop_at(line: int, lines: Sequence[str], label: str) -> int:
    """The line itself, the first line of the statement it belongs to, or the next line with code after a blank line, a
    comment or a `def`. ValueError where no code of a function follows.

    lines: the whole file; none, or a cell with magics, is taken at its word.
    """
    if not isinstance(line, int) or line < 1 or lines and line > len(lines):
        raise ValueError(f"{label} has lines 1 to {len(lines) or 'its end'}, not {line!r}")
    text = "\n".join(lines)
    try:
        whole = compile(text, label, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError:
        return line
    starts = statement_starts(tuple(lines))
    wanted = starts.get(line, line)
    stops = sorted({starts.get(n, n) for function in _functions(whole) for n in _lines(function)})
    if not stops:
        return line
    following = next((n for n in stops if n >= wanted), None)
    if following is None:
        raise ValueError(f"no code of a function follows line {line} of {label}: the last is line {stops[-1]}")
    return following


def _functions(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_flags & inspect.CO_OPTIMIZED:  # not the body of a class
                yield inner
            yield from _functions(inner)


def _lines(function: CodeType) -> set[int]:
    """Of its statements; the line of the `def`, which is run when the function is made, belongs to who makes it."""
    found = {line for _, _, line in function.co_lines() if line}
    return found - {function.co_firstlineno} or found
