"""The learner's own lines with a marker for every rank."""

from __future__ import annotations

import ast
import io
import keyword
import textwrap
import tokenize
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

from kit.plot.markup import chip, escape, heading
from kit.plot.moment import Standing, position_at, standing
from kit.trace.text import named

if TYPE_CHECKING:
    from kit.trace.facts import Position, Source
    from kit.trace.trace import Trace

LINE = 18  # px, the height of a row of code
_LEAST, _MOST = 8, 20  # rows shown without scrolling
_LETTERS = 52  # in a row of a panel beside a side bar; a line with more goes on in a row below, four letters further in
_GUTTER_CHIPS, _ABREAST = 8, 5  # chips shown beside one line, the rest is counted; more than five are smaller

Piece = tuple[str, str]  # (class of the text or '', text)


def source_html(trace: Trace, position: int, ranks: Collection[int] | None = None, held: Collection[int] = ()) -> str:
    """The function in which most ranks stand, a marker per rank in the gutter, and words for ranks elsewhere.

    `ranks`: show only these. `held`: ranks the person holds back, drawn square. The area's height depends on the
    stepped function alone, so it is the same at every position; longer code scrolls within it and opens where the
    ranks are.
    """
    moment = position_at(trace, position)
    shown = [r for r in range(len(moment.states)) if ranks is None or r in ranks]
    stands = [standing(trace, position, r) for r in shown]
    view = _function_in_view(trace, stands)
    source = trace.source(view[0]) if view else None
    if view is None or source is None:
        return _area(trace, "Source", _no_source(moment, view), _words(stands, view, trace), "no source")
    first, last = extent(source, view[1], view[2])
    chips: dict[int, list[str]] = {}
    for stand in stands:
        place = stand.within(view[0], view[1])
        if place is not None:
            row = last + 1 if stand.finished else place.line
            chips.setdefault(row, []).append(chip(stand.rank, moment.states[stand.rank], stand.rank in held))
    body = _rows(source, first, last, chips, len(moment.states), _rows_shown(trace))
    label = f"Source · {'/'.join(source.label.split('/')[-2:])}"  # a whole path would be cut short, at the file's name
    return _area(trace, label, body, _words(stands, view, trace), _spoken(stands, view), source.label)


def source_height(trace: Trace) -> int:
    """Height in px of the code, a constant of the trace."""
    return _rows_shown(trace) * LINE


def _rows_shown(trace: Trace) -> int:
    """Rows of the stepped function and its end line, within bounds; the outermost frame of the first stop is it."""
    for rank in trace.ranks:
        for stop in rank.stops[:1]:
            if stop.frames:
                place = stop.frames[0].place
                source = trace.source(place.file)
                if source:
                    first, last = extent(source, place.function, place.line)
                    return min(_MOST, max(_LEAST, _placed(source, first, last)[2]))
    return _LEAST


def _function_in_view(trace: Trace, stands: list[Standing]) -> tuple[str, str, int] | None:
    """(file, function, a line of it) that most ranks stand in; ties go to the one more ranks pass through."""
    standing_there: Counter[tuple[str, str]] = Counter()
    passing: Counter[tuple[str, str]] = Counter()
    lines: dict[tuple[str, str], int] = {}
    for stand in stands:
        for place in stand.places:
            key = (place.file, place.function)
            lines.setdefault(key, place.line)
            passing[key] += 1
            if place is stand.here:
                standing_there[key] += 1 if stand.finished else len(stands)  # those still at work weigh more
    if not lines:
        return None
    best = max(lines, key=lambda key: (trace.source(key[0]) is not None, standing_there[key], passing[key]))
    return (*best, lines[best])


@lru_cache(maxsize=64)
def _placed(source: Source, first: int, last: int) -> tuple[list[int], list[int], int]:
    """The lines that are shown and the one after for finished ranks; the row each begins in; how many rows in all."""
    hidden = folded(source, first, last)
    numbers = [number for number in range(first, last + 2) if number not in hidden]
    *starts, total = accumulate((_rows_of(source, number) for number in numbers), initial=0)
    return numbers, starts, total


def _rows_of(source: Source, number: int) -> int:
    """Rows that a line takes."""
    text = source.lines[number - 1] if number <= len(source.lines) else ""
    own = text.strip()
    room = _LETTERS - (len(text) - len(text.lstrip()))
    return len(textwrap.wrap(own, max(room, 12), subsequent_indent="    ", break_on_hyphens=False)) or 1


def _rows(source: Source, first: int, last: int, chips: dict[int, list[str]], world: int, shown: int) -> str:
    numbers, starts, total = _placed(source, first, last)
    marked = sorted(starts[bisect_right(numbers, number) - 1] for number in chips)
    top = numbers[bisect_right(starts, _first_visible(marked, 0, total - 1, shown)) - 1]
    lines = (*function_html(source, first, last), None)
    rows = []
    for number in numbers:
        code = lines[number - first]
        here = " ls-here" if number in chips else ""
        snap = " ls-top" if number == top else ""
        gutter = _gutter(chips.get(number, []), world)
        text = '<code class="ls-muted">end</code>' if code is None else _hanging(code)
        label = "" if code is None else str(number)
        rows.append(f'<div class="ls-line{here}{snap}">{gutter}<span class="ls-no">{label}</span>{text}</div>')
    width = 16 * max(world, 3) + 4 if world <= _ABREAST else 13 * min(world, _GUTTER_CHIPS) + 6
    room = 8 * max(2, len(str(last))) + 6
    return f'<div class="ls-code" style="--gutter:{width}px;--numbers:{room}px">{"".join(rows)}</div>'


def _hanging(code: str) -> str:
    """A line whose indentation stands beside it, so that what does not fit goes on below it and further in."""
    text = code.lstrip(" ")
    return f"<span>{' ' * (len(code) - len(text))}</span><code>{text}</code>"


def _gutter(chips: list[str], world: int) -> str:
    if len(chips) > _GUTTER_CHIPS:
        kept = chips[: _GUTTER_CHIPS - 2]
        chips = [*kept, f'<span class="ls-more">+{len(chips) - len(kept)}</span>']
    crowd = " ls-crowd" if world > _ABREAST else ""
    return f'<span class="ls-gutter{crowd}">{"".join(chips)}</span>'


def _first_visible(marked: list[int], first: int, last: int, shown: int) -> int:
    """The top row of a window that moves by half its height, so that it stands still while ranks take small steps."""
    if last - first < shown or not marked:
        return first
    starts: list[int] = [*range(first, last - shown + 1, max(1, shown // 2)), last - shown + 1]
    final = starts[-1]  # its last row is the end line; elsewhere a rank in the last row would not see its next line
    return max(starts, key=lambda top: (sum(top <= line < top + shown - (top < final) for line in marked), -top))


def _words(stands: list[Standing], view: tuple[str, str, int] | None, trace: Trace) -> str:
    """Names the ranks that stand outside the function in view, or inside a call made from it."""
    groups: dict[str, list[int]] = {}
    for stand in stands:
        here = stand.here
        if here is None or (view is not None and (here.file, here.function) == view[:2]):
            continue
        source = trace.source(here.file)
        label = source.label if source else here.file
        what = f"in {here.function}, line {here.line} of {label}" if not stand.finished else f"finished {here.function}"
        groups.setdefault(what, []).append(stand.rank)
    return "; ".join(f"{named(ranks)} {what}" for what, ranks in groups.items())


def _spoken(stands: list[Standing], view: tuple[str, str, int]) -> str:
    lines: dict[str, list[int]] = {}
    for stand in stands:
        place = stand.within(view[0], view[1])
        if place is not None:
            lines.setdefault("at the end" if stand.finished else f"at line {place.line}", []).append(stand.rank)
    return f"{view[1]}: " + "; ".join(f"{named(ranks)} {where}" for where, ranks in lines.items())


def _no_source(moment: Position, view: tuple[str, str, int] | None) -> str:
    where = f" of {view[1]} in {view[0]}" if view else ""
    started = any(state.stop >= 0 for state in moment.states)
    text = f"The source{where} is not at hand; the ranks run it all the same." if started else "Not started yet."
    return f'<div class="ls-empty">{escape(text)}</div>'


def _area(trace: Trace, title: str, body: str, note: str, spoken: str, hover: str = "") -> str:
    height = _rows_shown(trace) * LINE
    return (
        f'<div class="ls ls-source" role="group" aria-label="{escape(spoken)}">'
        f"{heading(title, 'circle paused · ring waits · square held', hover=hover)}"
        f'<div style="height:{height}px">{body}</div><div class="ls-note">{escape(note)}</div></div>'
    )


# -------------------------------------------------------------------------------------------------- code


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
