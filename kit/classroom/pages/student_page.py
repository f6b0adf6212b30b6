"""The page of a student, to be handed back: what is right, what is wrong with the rest, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.classroom.pages import code, frame
from kit.classroom.pages.given import HARDER, given
from kit.classroom.pages.words import lab_called, name, plain, sentence
from kit.grade.marks import FAILED, NOT_ATTEMPTED, PASSED, UNCHECKED
from kit.grade.words import html_of, joined
from kit.trace.text import counted

if TYPE_CHECKING:
    from kit.classroom.marks import Graded
    from kit.classroom.pages.overview import Overview, Row

_WORDS = {PASSED: "right", FAILED: "not yet", NOT_ATTEMPTED: "not attempted", UNCHECKED: "could not be checked"}


def html(class_: Overview, row: Row) -> str:
    """Nothing of anybody else is on it."""
    order = [each.identity for each in class_.exercises if each.identity in row.marks]
    marks = [row.marks[identity] for identity in order]
    labs = joined(dict.fromkeys(f"lab {lab_called(mark.lab)}" for mark in marks))
    passed = row.count(PASSED)
    parts = [
        f"<h1>{name(row.student.name)}</h1>",
        f"<p><b>{passed} of {counted(len(marks), 'exercise')}</b> of {labs} {'is' if passed == 1 else 'are'} right.</p>"
        if marks
        else "<p>Nothing that was handed in could be judged.</p>",
        _next(marks) if marks else "",
        *(_exercise(mark) for mark in marks),
        _remarks(row),
    ]
    return frame.page(f"{row.student.name}: exercises", "\n".join(filter(None, parts)))


def _next(marks: list[Graded]) -> str:
    """The first that is not right yet, those that were tried before those that were not."""
    open_ones = [mark for outcome in (FAILED, UNCHECKED, NOT_ATTEMPTED) for mark in marks if mark.outcome == outcome]
    if not open_ones:
        harder = [mark.lab for mark in marks if given(mark.exercise).harder]
        end = f" Lab {lab_called(harder[-1])} ends with <b>{HARDER}</b>." if harder else ""
        return f'<div class="note"><h2>What next</h2><p>All is right.{end}</p></div>'
    first, *others = open_ones
    where = given(first.exercise).section
    said = f"Go on with <a href='#{plain(first.exercise)}'>{plain(first.exercise)}</a>"
    said += f", in lab {lab_called(first.lab)} under <b>{html_of(where)}</b>." if where else "."
    after = joined(f"<a href='#{plain(mark.exercise)}'>{plain(mark.exercise)}</a>" for mark in others)
    then = f" After it: {after}." if others else ""
    return f'<div class="note"><h2>What next</h2><p>{said}{then}</p></div>'


def _exercise(mark: Graded) -> str:
    outcome = frame.known(mark.outcome)
    stage = f"<b>{plain(mark.stage.capitalize())}:</b> " if mark.stage else ""
    worlds = f"The values are right on {joined(mark.worlds)} ranks. " if mark.worlds and outcome == FAILED else ""
    told = f'<p class="said">{worlds}{stage}{sentence(mark.sentence)}</p>' if mark.sentence.strip() else ""
    again = (
        f'<p class="muted">Checked with seed {mark.seed}: <code>check(..., seed={mark.seed})</code> in your notebook'
        " draws the same inputs.</p>"
        if mark.seed is not None and outcome == FAILED
        else ""
    )
    own = "" if outcome == NOT_ATTEMPTED else code.html(mark.source, given(mark.exercise), mark.sentence)
    sign = f'<span class="sign {frame.css(outcome)}" aria-hidden="true">{frame.SIGNS[outcome]}</span>'
    head = f"<h2>{sign} {plain(mark.exercise)}: {_WORDS[outcome]}</h2>"
    return f'<section class="way" id="{plain(mark.exercise)}">{head}{told}{own}{_hints(mark)}{again}</section>'


def _hints(mark: Graded) -> str:
    """One hint for whoever has not begun, two for whoever is on the way; the third is nearly the code."""
    number = {FAILED: 2, UNCHECKED: 1, NOT_ATTEMPTED: 1}.get(frame.known(mark.outcome), 0)
    hints = given(mark.exercise).hints[:number]
    if not hints:
        return ""
    rows = "".join(f"<li>{html_of(each)}</li>" for each in hints)
    more = f'<p class="muted">A further hint: <code>hint("{plain(mark.exercise)}")</code> in your notebook.</p>'
    return f'<div class="hints"><h3>{"Hints" if number > 1 else "A hint"}</h3><ol>{rows}</ol>{more}</div>'


def _remarks(row: Row) -> str:
    if not row.troubles:
        return ""
    rows = "".join(f"<li><bdi>{plain(each.file, 120)}</bdi>: {sentence(each.sentence)}</li>" for each in row.troubles)
    return f"<section><h2>About your files</h2><ul>{rows}</ul></section>"
