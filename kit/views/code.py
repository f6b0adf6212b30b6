"""One function of a source file, ready to be shown: its extent, its lines without common indentation, calm colours."""

from __future__ import annotations

import ast
import io
import keyword
import textwrap
import tokenize
from functools import lru_cache

from kit.trace.facts import Source
from kit.views.markup import escape

Piece = tuple[str, str]  # (class of the text or '', text)


@lru_cache(maxsize=64)
def extent(source: Source, function: str, line: int) -> tuple[int, int]:
    """First and last line (from 1) of the innermost function of that name around a line; else the whole file."""
    wanted = function.rsplit(".", 1)[-1]
    best: tuple[int, int] | None = None
    for node in _functions(source):
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        last = node.end_lineno or node.lineno
        if node.name == wanted and first <= line <= last and (best is None or first >= best[0]):
            best = first, last
    return best or (1, max(1, len(source.lines)))


@lru_cache(maxsize=64)
def folded(source: Source, first: int, last: int) -> frozenset[int]:
    """The lines of first..last that a picture leaves out: a docstring after its first line, where no rank stands."""
    hidden: set[int] = set()
    for node in _functions(source):
        text = node.body[0]
        documented = (
            isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and text.value.value.__class__ is str
        )
        if documented and first <= node.lineno <= last and len(node.body) > 1:
            hidden.update(range(text.lineno + 1, (text.end_lineno or text.lineno) + 1))
    return frozenset(hidden)


@lru_cache(maxsize=64)
def function_html(source: Source, first: int, last: int) -> tuple[str, ...]:
    """The lines first..last as escaped HTML, dedented, with comments, strings and keywords in quiet colours."""
    lines = source.lines[first - 1 : last]
    margin = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    common = min((len(text) - len(text.lstrip()) for text in lines if text.strip()), default=0)
    coloured = _pieces(source)
    return tuple(_render(coloured[first - 1 + i], min(margin, common)) for i in range(len(lines)))


def _functions(source: Source) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    # A cell may hold lines only IPython reads; they are blanked so that the rest parses.
    lines = ["" if text.lstrip()[:1] in ("%", "!", "?") else text for text in source.lines]
    try:
        tree = ast.parse(textwrap.dedent("\n".join(lines)))
    except (SyntaxError, ValueError):
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


@lru_cache(maxsize=64)
def _pieces(source: Source) -> tuple[tuple[Piece, ...], ...]:
    """Every line cut into pieces; a file the tokenizer cannot read stays plain from there on."""
    marks: dict[int, list[tuple[int, int, str]]] = {}
    reader = io.StringIO("\n".join(source.lines) + "\n").readline
    try:
        for token in tokenize.generate_tokens(reader):
            kind = _kind(token)
            if not kind:
                continue
            for number in range(token.start[0], token.end[0] + 1):
                left = token.start[1] if number == token.start[0] else 0
                right = token.end[1] if number == token.end[0] else len(source.lines[number - 1])
                marks.setdefault(number, []).append((left, right, kind))
    except (tokenize.TokenError, SyntaxError):
        pass  # the pieces found so far are right; the rest of the text is shown without colours
    return tuple(_cut(text, marks.get(number, [])) for number, text in enumerate(source.lines, start=1))


def _kind(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.COMMENT:
        return "ls-comment"
    if token.type == tokenize.STRING:
        return "ls-string"
    if token.type == tokenize.NAME and keyword.iskeyword(token.string):
        return "ls-keyword"
    return ""


def _cut(text: str, marks: list[tuple[int, int, str]]) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    at = 0
    for left, right, kind in marks:
        pieces += [("", text[at:left]), (kind, text[left:right])]
        at = right
    pieces.append(("", text[at:]))
    return tuple(piece for piece in pieces if piece[1])


def _render(pieces: tuple[Piece, ...], margin: int) -> str:
    out = []
    for kind, text in pieces:
        cut = min(margin, len(text))
        if margin and not text[:cut].strip():
            text, margin = text[cut:], margin - cut
        else:
            margin = 0
        if text:
            out.append(f'<span class="{kind}">{escape(text)}</span>' if kind else escape(text))
    return "".join(out)
