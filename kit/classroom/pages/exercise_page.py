"""The page of an exercise: its wrong answers by their sentence, with the code of those who gave them side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.classroom.pages import code, frame
from kit.classroom.pages.given import given
from kit.classroom.pages.overview import OUTCOMES, at_heart, equal
from kit.classroom.pages.words import lab_called, names, plain, sentence
from kit.grade.marks import NOT_ATTEMPTED, PASSED, UNCHECKED
from kit.grade.words import html_of, joined
from kit.trace.text import counted

if TYPE_CHECKING:
    from kit.classroom.marks import Graded
    from kit.classroom.pages.given import Given
    from kit.classroom.pages.overview import OneExercise, Overview, WrongWay

SHORT = 2  # wrong sentences that need no list of them
AT_ONCE = 6  # different answers of a group that are shown unfolded


def html(class_: Overview, each: OneExercise) -> str:
    lab_gives = given(each.identity)
    words = {UNCHECKED: "that no check ran on"}
    counts = ", ".join(
        f"{each.count(outcome)} {words.get(outcome, outcome)}" for outcome in OUTCOMES if each.count(outcome)
    )
    parts = [
        '<nav><a href="../index.html">The class</a></nav>',
        f"<h1>{plain(each.identity)}</h1><p>Lab {lab_called(each.lab)}: {counts}.</p>",
        _teach(lab_gives, each),
        _contents(each),
        *(_way(class_, way, lab_gives) for way in each.wrong),
        _untried(class_, each),
        _right(class_, each, lab_gives),
    ]
    return frame.page(f"{each.identity}: answers of the class", "\n".join(filter(None, parts)))


def _teach(lab_gives: Given, each: OneExercise) -> str:
    if not lab_gives.section or not each.wrong:
        return ""
    told = f"The exercise stands under <b>{html_of(lab_gives.section)}</b>."
    if lab_gives.before:
        shows = joined(f"<code>{plain(name)}</code>" for name in lab_gives.shows)
        told += f" To teach again: <b>{html_of(lab_gives.before)}</b>, where {shows} of its hints can be seen."
    return f'<div class="note"><p>{told}</p><p>First hint: {html_of(lab_gives.hints[0])}</p></div>'


def _contents(each: OneExercise) -> str:
    """All wrong sentences at a glance, where there are more than a screen holds."""
    if len(each.wrong) <= SHORT:
        return ""
    rows = "".join(
        f'<li><a href="#way-{way.number}"><b>{len(way.marks)}</b> × {sentence(way.sentence)}</a></li>'
        for way in each.wrong
    )
    return (
        f'<details class="contents" open><summary>{len(each.wrong)} wrong sentences</summary><ul>{rows}</ul></details>'
    )


def _way(class_: Overview, way: WrongWay, lab_gives: Given) -> str:
    first = way.marks[0]
    stage = f"{plain(first.stage)}: " if first.stage else ""
    letter = f' <span class="letter">{way.letter}</span>' if way.letter else ""
    answers = equal(way.marks)
    shown, folded = answers[:AT_ONCE], answers[AT_ONCE:]
    more = (
        f"<details><summary>{counted(len(folded), 'other answer')} with this sentence</summary>"
        f"{_side_by_side(class_, folded, lab_gives, way.sentence)}</details>"
        if folded
        else ""
    )
    return (
        f'<section class="way" id="way-{way.number}"><h2><span class="times">{len(way.marks)} ×</span> {stage}'
        f"{sentence(way.sentence)}{letter}</h2>{_side_by_side(class_, shown, lab_gives, way.sentence)}{more}</section>"
    )


def _side_by_side(class_: Overview, answers: list[tuple[Graded, ...]], lab_gives: Given, said: str = "") -> str:
    """said: the sentence above them, which none of them repeats."""
    return f'<div class="beside">{"".join(_answer(class_, each, lab_gives, said) for each in answers)}</div>'


def _answer(class_: Overview, marks: tuple[Graded, ...], lab_gives: Given, above: str) -> str:
    first = marks[0]
    equal_ones = f' <span class="muted">({len(marks)} equal answers)</span>' if len(marks) > 1 else ""
    said = (
        f'<p class="said">{sentence(first.sentence)}</p>'
        if first.outcome != PASSED and at_heart(first.sentence) != above
        else ""
    )
    return (
        f"<article><h3>{names(class_.called(marks))}{equal_ones}</h3>{said}"
        f"{code.html(first.source, lab_gives, first.sentence if first.outcome != PASSED else '')}</article>"
    )


def _untried(class_: Overview, each: OneExercise) -> str:
    marks = [mark for mark in each.marks if mark.outcome == NOT_ATTEMPTED]
    if not marks:
        return ""
    return f"<section><h2>{len(marks)} not attempted</h2><p>{names(class_.called(marks))}</p></section>"


def _right(class_: Overview, each: OneExercise, lab_gives: Given) -> str:
    marks = [mark for mark in each.marks if mark.outcome == PASSED]
    if not marks:
        return ""
    ways = equal(marks)
    return (
        f"<section><h2>{len(marks)} passed</h2><details><summary>{counted(len(ways), 'way')} to write it"
        f"</summary>{_side_by_side(class_, ways, lab_gives)}</details></section>"
    )
