"""The learner's own lines with a marker for every rank."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection

from kit.trace.facts import Position, Source, Trace
from kit.trace.sentences import named
from kit.views.code import extent, folded, function_html
from kit.views.markup import chip, escape, heading
from kit.views.moment import Standing, position_at, standing

LINE = 17  # px, the height of a row of code
_LEAST, _MOST = 8, 18  # rows shown without scrolling
_GUTTER_CHIPS, _ABREAST = 8, 5  # chips shown beside one line, the rest is counted; more than five are smaller


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
    label = f"Source · {source.label}"
    return _area(trace, label, body, _words(stands, view, trace), _spoken(stands, view))


def source_height(trace: Trace) -> int:
    """Height in px of the code, a constant of the trace."""
    return _rows_shown(trace) * LINE


def _rows_shown(trace: Trace) -> int:
    """Rows for the stepped function and its end line, within bounds; the outermost frame of the first stop is it."""
    for rank in trace.ranks:
        for stop in rank.stops[:1]:
            if stop.frames:
                place = stop.frames[0].place
                source = trace.source(place.file)
                if source:
                    first, last = extent(source, place.function, place.line)
                    return min(_MOST, max(_LEAST, last - first + 2 - len(folded(source, first, last))))
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


def _rows(source: Source, first: int, last: int, chips: dict[int, list[str]], world: int, shown: int) -> str:
    hidden = folded(source, first, last)
    numbers = [number for number in range(first, last + 2) if number not in hidden]
    marked = sorted(bisect_right(numbers, number) - 1 for number in chips)
    top = numbers[_first_visible(marked, 0, len(numbers) - 1, shown)]
    lines = (*function_html(source, first, last), None)
    rows = []
    for number in numbers:
        code = lines[number - first]
        here = " ls-here" if number in chips else ""
        snap = " ls-top" if number == top else ""
        gutter = _gutter(chips.get(number, []), world)
        text = '<code class="ls-muted">end</code>' if code is None else f"<code{_whole(source, number)}>{code}</code>"
        label = "" if code is None else str(number)
        rows.append(f'<div class="ls-line{here}{snap}">{gutter}<span class="ls-no">{label}</span>{text}</div>')
    width = 16 * max(world, 3) + 2 if world <= _ABREAST else 12 * min(world, _GUTTER_CHIPS) + 6
    room = 7 * max(2, len(str(last))) + 8
    style = f"height:{shown * LINE}px;--gutter:{width}px;--numbers:{room}px"
    return f'<div class="ls-code" style="{style}">{"".join(rows)}</div>'


def _whole(source: Source, number: int) -> str:
    """A tooltip with the whole line where it may be too long for the area."""
    text = source.lines[number - 1].strip()
    return f' title="{escape(text)}"' if len(text) > 45 else ""


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
    starts = [*range(first, last - shown + 1, max(1, shown // 2)), last - shown + 1]
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


def _area(trace: Trace, title: str, body: str, note: str, spoken: str) -> str:
    height = _rows_shown(trace) * LINE
    return (
        f'<div class="ls ls-source" role="group" aria-label="{escape(spoken)}">'
        f"{heading(title, 'circle paused · ring waits · square held')}"
        f'<div style="height:{height}px">{body}</div><div class="ls-note">{escape(note)}</div></div>'
    )
