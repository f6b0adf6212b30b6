"""A learner's code on a page: coloured, the lines of a sentence marked, what the lab gave folded away."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from functools import cache
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any

from kit.classroom.pages.words import cut
from kit.trace.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kit.classroom.pages.given import Given

LINES, LETTERS = 300, 200  # of an answer, and of one of its lines: a page shows no more
_FEWEST_FOLDED = 2
_NAMED = re.compile(r"\bline (\d+)\b(?! of )")


def html(source: str, given: Given, sentence: str = "") -> str:
    """The lines of an answer with their numbers. sentence: the lines that it names are marked."""
    lines = source[: LINES * LETTERS].rstrip().split("\n")
    if not source.strip():
        return '<p class="none">There is no code.</p>'
    kept = [cut(line, LETTERS) for line in lines[:LINES]]
    named = {int(number) for number in _NAMED.findall(sentence)}
    coloured, ours = _coloured("\n".join(kept)), _given_lines(kept, given)
    parts = []
    for folded, numbers in groupby(range(1, len(kept) + 1), lambda number: ours[number - 1] and number not in named):
        block = list(numbers)
        rows = "".join(_row(number, coloured[number - 1], number in named) for number in block)
        fold = folded and len(block) >= _FEWEST_FOLDED and not all(ours)
        parts.append(_folded(block, rows) if fold else rows)
    left = source.count("\n", 0) + 1 - len(kept)
    more = f'<p class="none">{counted(left, "more line")} in the notebook.</p>' if left > 1 else ""
    return f'<div class="code" role="group" aria-label="code">{"".join(parts)}</div>{more}'


def _row(number: int, line: str, named: bool) -> str:
    words = '<span class="unseen">named in the sentence: </span>' if named else ""
    return f'<div class="line{" named" if named else ""}"><i>{number}</i><code>{words}{line}</code></div>'


def _folded(block: Sequence[int], rows: str) -> str:
    return f"<details><summary>lines {block[0]} to {block[-1]}, as given</summary>{rows}</details>"


def _given_lines(lines: Sequence[str], given: Given) -> list[bool]:
    """Which lines are the lab's: those of the stub in their order, and imports and helpers it has anywhere."""
    ours = [
        line.startswith(("import ", "from "))
        or (not line.startswith((" ", "\t")) and (line.rstrip() in given.lines or not line))
        for line in lines
    ]
    matcher = SequenceMatcher(None, given.stub.rstrip().split("\n"), lines, autojunk=False)
    for block in matcher.get_matching_blocks():
        for number in range(block.b, block.b + block.size):
            ours[number] = True
    return ours


def _coloured(text: str) -> list[str]:
    """The lines of a text as HTML: each token in its colour, and each line whole in itself."""
    lines = [""]
    for kind, value in _lexer().get_tokens(text):
        name = _class(str(kind))
        for number, part in enumerate(value.split("\n")):
            if number:
                lines.append("")
            if part:
                lines[-1] += f'<span class="{name}">{escape(part)}</span>' if name else escape(part)
    return lines


def _class(kind: str) -> str:
    for start, name in (("Token.Keyword", "k"), ("Token.Literal.String", "s"), ("Token.Comment", "c")):
        if kind.startswith(start):
            return name
    return "k" if kind == "Token.Operator.Word" else ""


@cache
def _lexer() -> Any:
    from pygments.lexers.python import PythonLexer

    return PythonLexer(stripnl=False, ensurenl=False)
