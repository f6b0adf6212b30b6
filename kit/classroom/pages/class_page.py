"""The class page: what to trust, what to teach again, everybody's marks, and what needs a person to look at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.classroom.pages import frame
from kit.classroom.pages.overview import OUTCOMES, equal
from kit.classroom.pages.words import lab_called, lasted, name, names, plain, sentence, share
from kit.grade.marks import FAILED, NOT_ATTEMPTED, PASSED, UNCHECKED
from kit.trace.text import counted

if TYPE_CHECKING:
    from kit.classroom.pages.overview import OneExercise, Overview, Row

TITLE = "Marks of the class"


def html(class_: Overview) -> str:
    parts = [_walls(class_), f"<h1>{TITLE}</h1>", _sums(class_), _to_see(class_)]
    parts += [_controls()] if class_.exercises else []
    parts += [_lab(class_, lab) for lab in class_.labs]
    parts += [_missing(class_), _troubles(class_), _alike(class_)]
    return frame.page(TITLE, "\n".join(part for part in parts if part), script="pages.js")


def _walls(class_: Overview) -> str:
    """The first line: what stood between answers and everything else, and what that does not keep out."""
    run = class_.class_
    if not class_.exercises:
        return '<p class="walls">Nothing was run.</p>'
    held = f"Answers ran behind <b>{plain(run.walls, 200)}</b>."
    if run.not_held:
        held += f" Not held back by it:<ul>{''.join(f'<li>{sentence(each)}</li>' for each in run.not_held)}</ul>"
    for walls, number in class_.elsewhere():
        held += f" {counted(number, 'answer')} ran earlier, behind {plain(walls, 200)}."
    return f'<div class="walls{" open" if run.not_held else ""}">{held}</div>'


def _sums(class_: Overview) -> str:
    handed = sum(bool(row.marks) for row in class_.rows)
    run = class_.class_
    shared = "Each answer ran by itself." if run.each else "Equal answers ran once, and share the mark."
    said = [
        f"<b>{handed} of {counted(len(class_.rows), 'student')}</b> handed in what could be judged",
        f"{counted(len(class_.missing), 'student')} handed in nothing" if class_.missing else "",
        counted(len(run.troubles), "remark") + " about files" if run.troubles else "",
        f"the run took {lasted(run.seconds)}",
    ]
    return f"<p>{'; '.join(filter(None, said))}. Everybody had the same inputs. {shared}</p>"


def _to_see(class_: Overview) -> str:
    """For each exercise how it went, and the commonest mistake."""
    if not class_.exercises:
        return ""
    rows = "".join(_exercise(each, several=len(class_.labs) > 1) for each in class_.exercises)
    heads = "".join(
        f'<th scope="col"{extra}>{text}</th>'
        for text, extra in (
            ("exercise", ""),
            ("passed", ""),
            ("commonest wrong sentence", ""),
            ("on ranks", ' class="number"'),
        )
    )
    return (
        f'<section><h2>What to teach again</h2><table class="summary"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table>{_legend()}</section>"
    )


def _exercise(each: OneExercise, several: bool) -> str:
    first = each.wrong[0] if each.wrong else None
    told = (
        f'<a href="{each.page}#way-1"><b>{len(first.marks)}</b> × {sentence(first.sentence)}</a>'
        if first
        else '<span class="muted">none</span>'
    )
    bar = "".join(
        f'<span class="{frame.css(outcome)}" style="flex:{each.count(outcome)}"></span>'
        for outcome in OUTCOMES
        if each.count(outcome)
    )
    lab = f'<span class="muted">{lab_called(each.lab)}</span>' if several else ""
    return (
        f'<tr><th scope="row" class="name"><a href="{each.page}">{plain(each.identity)}</a> {lab}</th>'
        f'<td class="rate">{share(each.count(PASSED), len(each.marks))}'
        f'<div class="bar" aria-hidden="true">{bar}</div></td>'
        f'<td class="told">{told}</td><td class="number took">{lasted(each.seconds)}</td></tr>'
    )


def _legend() -> str:
    signs = "".join(
        f'<span class="key"><span class="sign {frame.css(outcome)}" aria-hidden="true">{frame.SIGNS[outcome]}</span>'
        f" {outcome}</span>"
        for outcome in OUTCOMES
    )
    return (
        f'<p class="legend">{signs}<span class="key">a, b, …: the same wrong sentence, the commonest first</span></p>'
    )


def _controls() -> str:
    choices = "".join(
        f'<option value="{value}">{text}</option>'
        for value, text in (
            ("", "everybody"),
            (frame.css(FAILED), "with a wrong answer"),
            (frame.css(NOT_ATTEMPTED), "with something not attempted"),
            (frame.css(UNCHECKED), "with something no check ran on"),
            ("missing", "who handed in nothing that could be judged"),
            ("all", "who passed all"),
        )
    )
    return (
        '<form class="controls" hidden><label>Show <select id="which">'
        f'{choices}</select></label> <label>Name <input id="called" type="search" autocomplete="off"></label>'
        ' <output id="shown" aria-live="polite"></output></form>'
    )


def _lab(class_: Overview, lab: str) -> str:
    exercises = class_.of_lab(lab)
    heads = "".join(
        f'<th scope="col" data-sort="outcome"><span class="tilt"><a href="{each.page}">{plain(each.identity)}</a>'
        "</span></th>"
        for each in exercises
    )
    rows = "".join(_row(row, exercises) for row in class_.rows)
    return (
        f'<section><h2>Lab {lab_called(lab)}</h2><table class="matrix"><thead><tr><th scope="col" data-sort="text">'
        f'student</th>{heads}<th scope="col" data-sort="number" class="number">passed</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></section>"
    )


def _row(row: Row, exercises: list[OneExercise]) -> str:
    cells = []
    for each in exercises:
        mark = row.marks.get(each.identity)
        if mark is None:
            cells.append('<td data-key="9"><span class="unseen">nothing was handed in</span></td>')
            continue
        way = each.way_of.get(row.student.key)
        sign = frame.mark(mark.outcome, way.letter if way else "")
        inside = f'<a href="{each.page}#way-{way.number}">{sign}</a>' if way else sign
        order = OUTCOMES.index(frame.known(mark.outcome))
        cells.append(f'<td data-key="{order}{way.number if way else 0:03}">{inside}</td>')
    own = [row.marks[each.identity] for each in exercises if each.identity in row.marks]
    passed = sum(mark.outcome == PASSED for mark in own)
    tags = {frame.css(mark.outcome) for mark in own} or {"missing"}
    tags |= {"all"} if tags == {"passed"} and len(own) == len(exercises) else set()
    who = f'<a href="{row.page}">{name(row.student.name)}</a>' if not row.missing else name(row.student.name)
    off = "" if row.listed else ' <span class="muted">(not on the class list)</span>'
    number = f"{passed}" if own else '<span class="muted">nothing</span>'
    return (
        f'<tr data-has="{" ".join(sorted(tags))}"><th scope="row">{who}{off}</th>{"".join(cells)}'
        f'<td class="number" data-key="{passed if own else -1}">{number}</td></tr>'
    )


def _missing(class_: Overview) -> str:
    if not class_.missing:
        return ""
    told = names(row.student.name for row in class_.missing)
    return f"<section><h2>Nothing from {counted(len(class_.missing), 'student')}</h2><p>{told}</p></section>"


def _troubles(class_: Overview) -> str:
    if not class_.class_.troubles:
        return ""
    called = {row.student.key: row.student.name for row in class_.rows}
    rows = "".join(
        f'<tr><th scope="row"><bdi>{plain(each.file, 120)}</bdi></th>'
        f"<td>{name(called[each.student]) if each.student else '–'}</td><td>{sentence(each.sentence)}</td></tr>"
        for each in class_.class_.troubles
    )
    heads = '<th scope="col">file</th><th scope="col">student</th><th scope="col">remark</th>'
    return (
        '<section><h2>Files that could not be used, or not as they stand</h2><table class="summary"><thead><tr>'
        f"{heads}</tr></thead><tbody>{rows}</tbody></table></section>"
    )


def _alike(class_: Overview) -> str:
    """Said as it is: it tells nothing of how it came about."""
    whole = "".join(
        f"<li>{names(row.student.name for row in rows)}: {counted(number, 'answer')} of lab {lab_called(lab)}</li>"
        for lab in class_.labs
        for rows, number in class_.alike(lab)
    )
    single = "".join(_alike_in(class_, each) for each in class_.exercises)
    if not whole and not single:
        return ""
    wholly = f"<ul>{whole}</ul>" if whole else "<p>None is equal in all that was tried.</p>"
    each = f"<details><summary>Exercise by exercise</summary><ul>{single}</ul></details>" if single else ""
    return (
        "<section><h2>Equal hand-ins</h2><p>Equal but for comments and layout. Short exercises have few right answers,"
        " and people may work together: this says that answers are equal, and nothing else.</p>"
        f"{wholly}{each}</section>"
    )


def _alike_in(class_: Overview, each: OneExercise) -> str:
    tried = [mark for mark in each.marks if mark.outcome != NOT_ATTEMPTED and mark.source]
    groups = [group for group in equal(tried) if len(group) > 1]
    told = "; ".join(f"{names(class_.called(group))} ({plain(group[0].outcome)})" for group in groups)
    return f"<li><b>{plain(each.identity)}</b>: {told}</li>" if told else ""
