"""`lockstep grade`: what a class handed in, judged behind walls, and pages of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit.cli.numbers import seconds, whole

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from kit.classroom.grading import Grading, Terms
    from kit.classroom.marks import Class, Graded
    from kit.classroom.roster import Roster


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "grade",
        help="grade what a class handed in",
        description="Take the answers out of the notebooks of a class, run each of them behind walls on ranks of its "
        "own, with the same inputs for everybody, and write pages for you and for each student. What cannot be read is "
        "told and costs nobody else a mark. The same command again goes on where it was stopped.",
        epilog="Examples: 'lockstep grade handed-in --roster class.csv --out marks', 'lockstep grade --again ada "
        "broadcast --out marks'. The class list is a table with the columns name,key: what a student's files begin "
        "with, or the name of their folder; or name,file.",
    )
    parser.add_argument("handins", nargs="?", type=Path, metavar="HANDINS", help="the folder with the notebooks")
    parser.add_argument("--roster", type=Path, metavar="CSV", help="the class list (default: by names of files)")
    parser.add_argument(
        "--out", type=Path, default=Path("marks"), metavar="DIR", help="where marks and pages go (default: ./marks)"
    )
    parser.add_argument(
        "--again", nargs=2, metavar=("STUDENT", "EXERCISE"), help="repeat one verdict, and show all that there is to it"
    )
    parser.add_argument("--ranks", type=whole(2, "the number of ranks"), metavar="N", help="ranks (default: 4)")
    parser.add_argument(
        "--jobs",
        type=whole(1, "the number of answers at once"),
        metavar="N",
        help="answers at once (default: as many as cores and memory allow)",
    )
    parser.add_argument("--seed", type=whole(0, "the seed"), metavar="N", help="of all inputs (default: drawn)")
    parser.add_argument(
        "--limit", type=seconds, default=120.0, metavar="S", help="seconds an exercise may take (default: 120)"
    )
    parser.add_argument("--each", action="store_true", help="run equal answers one by one, not once for all")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from kit.classroom.grading import Terms
    from kit.classroom.roster import Roster

    if options.again:
        return _again(options)
    if options.handins is None:
        raise ValueError("name the folder with what your class handed in: lockstep grade HANDINS --out marks")
    roster = Roster.read(options.roster) if options.roster else None
    try:
        terms = Terms.agreed(options.out, options.handins, options.roster, options.ranks, options.seed)
        return _grade(options, roster, terms)
    except OSError as problem:
        raise ValueError(
            f"marks cannot be written to {options.out} ({problem.strerror}): name another folder with --out, or make"
            " room, and give the same command again"
        ) from problem


def _grade(options: argparse.Namespace, roster: Roster | None, terms: Terms) -> int:
    from kit.classroom import ground, pages, tables
    from kit.classroom.grading import Grading, tasks_in
    from kit.classroom.marks import Book, Class
    from kit.grade.marks import UNCHECKED

    begun = time.monotonic()
    apart = [options.out, *([options.roster] if options.roster else [])]
    tasks, troubles, found = tasks_in(options.handins, roster, apart)
    walls = ground.strongest(terms.ranks)
    print(f"Answers run behind: {walls.name}.", *walls.not_held, sep="\n  not held: ", flush=True)
    book = Book(options.out / "marks.jsonl")
    grading = Grading(tasks, terms, book, walls.ranks, walls.name, options.limit, options.each)
    _go_through(grading, options.jobs)
    marks = tuple(grading.marks[task.key] for task in tasks)
    everybody = roster.students if roster else tuple(dict.fromkeys(each.student for each in found))
    labs = tuple(sorted({task.lab for task in tasks}))
    took = round(time.monotonic() - begun, 1)
    class_ = Class(everybody, marks, tuple(troubles), labs, walls.name, walls.not_held, took, options.each)
    tables.write(class_, options.out)
    page = pages.write(class_, options.out)
    print("", *_summary(class_), f"Pages: {page}; marks: {options.out / 'marks.csv'}", sep="\n", flush=True)
    return 1 if any(mark.outcome == UNCHECKED and mark.walls for mark in marks) else 0


def _go_through(grading: Grading, jobs: int | None) -> None:
    """Run what has to be run, with a line for each answer."""
    from kit.classroom import ground

    runs, answers = len(grading.waiting), len(grading.tasks)
    had = answers - sum(map(len, grading.waiting))
    print(f"{answers} answers: {had} need no run (any more), of the others {runs} differ and are run.", flush=True)
    begun = time.monotonic()
    for number, marks in enumerate(grading.run(jobs or ground.at_once(runs)), 1):
        left = (time.monotonic() - begun) / number * (runs - number)
        equal = f" ({len(marks)} equal answers)" if len(marks) > 1 else ""
        first = marks[0]
        row = f"{number:>4} of {runs}  {first.exercise:<26} {first.outcome:<14}{first.student}{equal}"
        print(f"{row}  {_time_left(left)}", flush=True)


def _time_left(left: float) -> str:
    return f"about {left:.0f} s left" if left < 90 else f"about {left / 60:.0f} min left"


def _summary(class_: Class) -> list[str]:
    from kit.grade.marks import FAILED, NOT_ATTEMPTED, PASSED, UNCHECKED

    outcomes = (PASSED, FAILED, NOT_ATTEMPTED, UNCHECKED)
    exercises = list(dict.fromkeys((mark.lab, mark.exercise) for mark in class_.graded))
    width = max((len(exercise) for _, exercise in exercises), default=8)
    lines = [f"{'exercise':<{width}}  {'  '.join(outcomes)}"]
    for lab, exercise in exercises:
        marks = [mark for mark in class_.graded if (mark.lab, mark.exercise) == (lab, exercise)]
        cells = (f"{sum(mark.outcome == outcome for mark in marks):>{len(outcome)}}" for outcome in outcomes)
        lines.append(f"{exercise:<{width}}  {'  '.join(cells)}")
    lines += [f"{trouble.file}: {trouble.sentence}." for trouble in class_.troubles]
    has = {mark.student for mark in class_.graded} | {trouble.student for trouble in class_.troubles}
    missing = [student.name for student in class_.roster if student.key not in has]
    if missing:
        lines.append(f"Nothing from {', '.join(missing)}.")
    return lines


# ------------------------------------------------------------------------------------------------ one verdict again


def _again(options: argparse.Namespace) -> int:
    """Repeat a verdict from its seed; 1 where it is another one than was marked."""
    from kit.classroom import ground
    from kit.classroom.grading import Terms, judged, tasks_in
    from kit.classroom.marks import Book, as_kept
    from kit.classroom.roster import Roster
    from kit.grade.words import shown

    who, exercise = options.again
    terms = Terms.kept(options.out)
    if terms is None:
        raise ValueError(f"{options.out} has no marks: name the folder of an earlier run with --out")
    mark = _mark_of(list(Book(options.out / "marks.jsonl")), who, exercise)
    roster = Roster.read(Path(terms.roster)) if terms.roster else None
    apart = [options.out, *([Path(terms.roster)] if terms.roster else [])]
    tasks, _, _ = tasks_in(Path(terms.handins), roster, apart)
    task = next((each for each in tasks if each.key == (mark.student, mark.file, mark.exercise)), None)
    if task is None:
        raise ValueError(f"{mark.file} is no longer what counts of {mark.student}: grade the hand-ins again first")
    print(f"{mark.student}, {mark.exercise} ({mark.file}): {mark.outcome}")
    if mark.seed is None:
        print(f"Nothing of it ran: {mark.sentence or 'the stub is as it was'}.")
        return 0
    walls = ground.strongest(terms.ranks)
    with walls.ranks() as ranks:
        verdict = judged(task, ranks, mark.seed, mark.ranks, options.limit, beside=True)
    print(f"Behind {walls.name}, with seed {mark.seed}, on up to {mark.ranks} ranks:", "", sep="\n")
    print(shown(str(verdict)), "", sep="\n")
    print(verdict.side_by_side(), "", sep="\n")
    lines = task.answer.source.rstrip("\n").split("\n")
    print(*(f"{number:>4}  {shown(line.expandtabs(4))}" for number, line in enumerate(lines, 1)), sep="\n")
    if (verdict.status, as_kept(verdict.sentence)) == (mark.outcome, mark.sentence):
        return 0
    print("", f"This is not what was marked: {mark.outcome}: {mark.sentence}", sep="\n")
    return 1


def _mark_of(marks: Sequence[Graded], who: str, exercise: str) -> Graded:
    of_student = [mark for mark in marks if mark.student.casefold() == who.casefold()]
    if not of_student:
        known = ", ".join(sorted({mark.student for mark in marks}))
        raise ValueError(f"nobody is called {who!r} among the marks: there are {known or 'none'}")
    found = [mark for mark in of_student if mark.exercise == exercise]
    if not found:
        known = ", ".join(dict.fromkeys(mark.exercise for mark in of_student))
        raise ValueError(f"{who} has no mark for {exercise!r}: there are {known}")
    return found[-1]
