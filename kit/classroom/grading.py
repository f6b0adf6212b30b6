"""From hand-ins to marks: what there is to judge, who judges it, and what was judged before.

Every student gets the same inputs, drawn from one seed per exercise. Answers that say the same are run once, and the
mark is shared. What one answer does, or what the machine does to it, costs no other its mark.
"""

from __future__ import annotations

import json
import random
import re
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kit import __version__
from kit.classroom import roster as rosters
from kit.classroom.dormant import dormant, forget
from kit.classroom.files import put
from kit.classroom.ground import Ended, OutOfTime
from kit.classroom.handins import Answer, HandIn, Unreadable
from kit.classroom.marks import Book, Graded, Trouble
from kit.grade import discovery
from kit.grade.checker import Judge, attempt
from kit.grade.marks import FAILED, NOT_ATTEMPTED, PASSED, UNCHECKED
from kit.grade.words import on_one_line

if TYPE_CHECKING:
    from kit.classroom.ground import Ground, Ranks
    from kit.classroom.roster import Found, Roster
    from kit.grade.exercise import Exercise
    from kit.grade.verdict import Verdict

_NAMES_A_LINE = re.compile(r"\blines? \d")


@dataclass(frozen=True)
class Task:
    """One exercise of one hand-in."""

    found: Found
    lab: str
    exercise: Exercise
    answer: Answer

    @property
    def key(self) -> tuple[str, str, str]:
        return self.found.student.key, self.found.name, self.exercise.id


@dataclass(frozen=True)
class Terms:
    """What holds for all marks of a run, and is kept beside them: a second run with the same folder goes on."""

    seed: int
    ranks: int
    handins: str  # the folder
    roster: str = ""  # the class list

    def seed_of(self, exercise: str) -> int:
        """Of the inputs of an exercise: the same for everybody."""
        return random.Random(f"{self.seed}/{exercise}").randrange(1_000_000)

    @classmethod
    def agreed(cls, folder: Path, handins: Path, roster: Path | None, ranks: int | None, seed: int | None) -> Terms:
        """Those of the run that began in this folder, or new ones, which are kept there.

        Raises ValueError where the folder has marks on other terms than those asked for.
        """
        whose = str(roster.absolute()) if roster else ""
        before = cls.kept(folder)
        if before is None:
            terms = cls(secrets.randbelow(1_000_000) if seed is None else seed, ranks or 4, _path(handins), whose)
            put(folder / "run.json", json.dumps({"lockstep": __version__, **vars(terms)}, indent=2) + "\n")
            return terms
        for what, asked, had in (
            ("of other hand-ins", _path(handins), before.handins),
            ("on another number of ranks", ranks, before.ranks),
            ("from another seed", seed, before.seed),
        ):
            if asked is not None and asked != had:
                raise ValueError(f"{folder} has marks {what} ({had}): name another folder with --out")
        return replace(before, roster=whose)

    @classmethod
    def kept(cls, folder: Path) -> Terms | None:
        """Those of the run that began in this folder; None where none did. ValueError for a file that is none."""
        path = folder / "run.json"
        if not path.exists():
            return None
        try:
            entry = json.loads(path.read_text(encoding="utf-8"))
            return cls(int(entry["seed"]), int(entry["ranks"]), str(entry["handins"]), str(entry.get("roster", "")))
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise ValueError(f"{path} cannot be read ({problem}): name another folder with --out") from problem


def _path(folder: Path) -> str:
    return on_one_line(str(folder.absolute()))


# ----------------------------------------------------------------------------------------------- what there is to do


def tasks_in(
    folder: Path, roster: Roster | None, apart: Sequence[Path] = ()
) -> tuple[list[Task], list[Trouble], list[Found]]:
    """Every exercise of every hand-in, what cannot be read, and all notebooks there are.

    Of several hand-ins of one student for one lab the newest counts. apart: see `roster.find`.
    """
    found, troubles = rosters.find(folder, roster, apart)
    by_lab: dict[tuple[str, str], list[tuple[Found, list[Task]]]] = defaultdict(list)
    for each in found:
        try:
            handin = HandIn(each.path)
            labs = handin.labs(each.name)
            read = {lab.name: _tasks_of(each, handin, lab) for lab in labs}
        except Unreadable as problem:
            troubles.append(Trouble(each.name, each.student.key, str(problem)))
            continue
        except Exception as problem:  # whatever a file does to those who read it
            words = f"it could not be read ({type(problem).__name__}: {on_one_line(str(problem))[:200]})"
            troubles.append(Trouble(each.name, each.student.key, words))
            continue
        troubles += [Trouble(each.name, each.student.key, sentence) for sentence in handin.troubles]
        if not labs:
            troubles.append(Trouble(each.name, each.student.key, "it has no exercise of any lab, nor a lab's name"))
        for lab, tasks in read.items():
            by_lab[each.student.key, lab].append((each, tasks))
    chosen: list[Task] = []
    for several in by_lab.values():
        newest, tasks = max(several, key=lambda one: one[0].path.stat().st_mtime)
        chosen += tasks
        for other, _ in several:
            if other is not newest:
                words = f"there is a newer hand-in of this lab, {newest.name}: that one counts"
                troubles.append(Trouble(other.name, other.student.key, words))
    return chosen, troubles, found


def _tasks_of(found: Found, handin: HandIn, lab: discovery.Lab) -> list[Task]:
    known = discovery.exercises()
    return [Task(found, lab.name, known[answer.exercise], answer) for answer in handin.answers(lab)]


def at_sight(task: Task) -> tuple[str, str] | None:
    """(outcome, sentence) of an answer of which nothing has to be run; None for all others."""
    answer = task.answer
    if not answer.source:
        return (UNCHECKED if "no function marked" in answer.problem else FAILED), answer.problem
    if answer.problem:
        return FAILED, answer.problem
    return (NOT_ATTEMPTED, "") if answer.untouched else None


# ----------------------------------------------------------------------------------------------------- judging it


_Known = dict[tuple[str, str], list[tuple[Graded, str]]]  # by exercise and digest: marks with their layouts


class Grading:
    """One run of `lockstep grade`: `for mark in grading.run(): ...`. limit: seconds that an exercise may take."""

    def __init__(
        self, tasks: Sequence[Task], terms: Terms, book: Book, ground: Ground, walls: str, limit: float, each: bool
    ) -> None:
        self.tasks, self.terms, self.book, self._ground = tasks, terms, book, ground
        self._walls, self._limit, self._each = walls, limit, each
        self.marks: dict[tuple[str, str, str], Graded] = {}
        self._own = threading.local()
        self._leaving = ExitStack()
        self._lock = threading.Lock()
        self._left = threading.Event()
        self._known = self._read()
        self.waiting = list(self._groups())  # what has to be run: lists of tasks with equal answers

    def _read(self) -> _Known:
        """Take over the marks of an earlier run that still hold; those of answers that ran, by what was answered."""
        by_key = {(mark.student, mark.file, mark.exercise): mark for mark in self.book}
        known: _Known = defaultdict(list)
        for task in self.tasks:
            mark = by_key.get(task.key)
            if mark is None or mark.digest != self._digest(task) or mark.source != self._blank(task).source:
                continue
            if mark.outcome == UNCHECKED and task.answer.source:
                continue  # the machine was at fault
            self.marks[task.key] = mark
            if mark.seed is not None:
                known[task.exercise.id, mark.digest].append((mark, task.answer.layout))
        return known

    def _groups(self) -> Iterator[list[Task]]:
        together: dict[object, list[Task]] = defaultdict(list)
        for number, task in enumerate(self.tasks):
            if task.key in self.marks:
                continue
            seen = at_sight(task)
            if seen is not None:
                self._keep(replace(self._blank(task), outcome=seen[0], sentence=seen[1]))
            else:
                together[number if self._each else (task.exercise.id, task.answer.digest)].append(task)
        yield from together.values()

    def run(self, jobs: int) -> Iterator[list[Graded]]:
        """The marks of equal answers, as they come. Leaving early ends what is under way, which leaves no mark."""
        with ThreadPoolExecutor(jobs, "judge") as pool, self._leaving:
            futures = [pool.submit(self._judge, group) for group in self.waiting]
            try:
                for future in as_completed(futures):
                    yield future.result()
            except BaseException:
                self._left.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _judge(self, group: Sequence[Task]) -> list[Graded]:
        done: list[Graded] = []
        for task in group:
            mark = None if self._each else self._shared(task)
            if mark is None:
                mark = self._mark(task)
                if not self._each and mark.outcome != UNCHECKED:
                    self._known[task.exercise.id, mark.digest].append((mark, task.answer.layout))
            self._keep(mark)
            done.append(mark)
        return done

    def _shared(self, task: Task) -> Graded | None:
        """The mark of an equal answer, if it holds word for word: a line it names must be that line here too."""
        mine = self._blank(task)
        for mark, layout in self._known[task.exercise.id, mine.digest]:
            if layout == task.answer.layout or not _NAMES_A_LINE.search(mark.sentence):
                return replace(mark, student=mine.student, file=mine.file, source=mine.source, seconds=0.0)
        return None

    def _mark(self, task: Task) -> Graded:
        begun = time.monotonic()
        seed = self.terms.seed_of(task.exercise.id)
        try:
            verdict = self._verdict(task, seed)
        except Ended as problem:
            told = replace(
                self._blank(task), outcome=FAILED, stage="values", sentence=on_one_line(str(problem)), seed=seed
            )
        except Exception as problem:  # the machine's, or the check's own: no answer's fault, and no other's
            words = f"it could not be checked ({type(problem).__name__}: {on_one_line(str(problem))[:300]})"
            told = replace(self._blank(task), sentence=words)
        else:
            told = replace(
                self._blank(task),
                outcome={"passed": PASSED, "failed": FAILED, "not attempted": NOT_ATTEMPTED}[verdict.status],
                stage=verdict.stage,
                sentence=verdict.sentence,
                worlds=verdict.worlds,
                seed=seed,
            )
        return replace(told, walls=self._walls, seconds=round(time.monotonic() - begun, 3))

    def _verdict(self, task: Task, seed: int) -> Verdict:
        """On ranks that were started for it, where it ended those that others had been on."""
        try:
            return judged(task, self._ranks(), seed, self.terms.ranks, self._limit)
        except OutOfTime:
            raise
        except Ended:
            if self._left.is_set():
                raise
            return judged(task, self._ranks(), seed, self.terms.ranks, self._limit)

    def _ranks(self) -> Ranks:
        """Those of this worker, started when it first needs them."""
        if not hasattr(self._own, "ranks"):
            context = self._ground()
            self._own.ranks = context.__enter__()
            with self._lock:
                self._leaving.push(context)
        ranks: Ranks = self._own.ranks
        return ranks

    def _keep(self, mark: Graded) -> None:
        with self._lock:
            if self._left.is_set():
                return
            self.book.add(mark)
            self.marks[mark.student, mark.file, mark.exercise] = mark

    def _blank(self, task: Task) -> Graded:
        return Graded(
            student=task.found.student.key,
            file=task.found.name,
            exercise=task.exercise.id,
            lab=task.lab,
            outcome=UNCHECKED,
            stage="",
            sentence="",
            seed=None,
            worlds=(),
            ranks=self.terms.ranks,
            seconds=0.0,
            source=task.answer.source,
            walls="",
            digest=self._digest(task),
        )

    @staticmethod
    def _digest(task: Task) -> str:
        return "" if not task.answer.source or task.answer.problem else task.answer.digest


def judged(task: Task, ranks: Ranks, seed: int, most: int, limit: float, beside: bool = False) -> Verdict:
    """The verdict on an answer that can be run. most: the largest world. beside: with the solution's run."""
    function = dormant(task.answer)
    try:
        runner = ranks.runner(task.answer, time.monotonic() + limit)
        judge = Judge(task.exercise, function, runner, most, seed)
        verdict = judge.verdict()
    finally:
        forget(task.answer)
    solution = _solution(task.exercise) if beside else None
    if solution is None:
        return verdict
    runner = ranks.runner(solution, time.monotonic() + limit)
    return replace(verdict, target=attempt(dormant(solution), judge.shown, runner).trace)


def _solution(exercise: Exercise) -> Answer | None:
    """The solution, as an answer that runs where answers run; None where the lab came without."""
    home = discovery.labs()[exercise.lab].solutions
    return Answer(exercise.id, exercise.function, home.read_text(encoding="utf-8")) if home.is_file() else None
