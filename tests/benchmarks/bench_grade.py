"""What it takes to grade a class of seventy: a made one of lab 01a, with every usual mistake and every kind of trouble.

    python -m tests.benchmarks.bench_grade [--lab 01a_collectives] [--json FILE]

Figures: seconds by the clock, as many answers at once as the machine takes, when equal answers are run once and when
each is run for itself; and the memory of all processes at its highest (PSS). Every mark is compared with the one it
must be; a wrong one ends the program.
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path

import psutil

from kit.classroom import ground
from kit.classroom.grading import Grading, Terms, tasks_in
from kit.classroom.marks import Book
from kit.grade import discovery
from tests.benchmarks.figures import Figure, options, tell
from tests.classroom.made_class import AtTwenty, Made, as_expected, seventy

MINUTES = 20  # on two cores
LIMIT = 120.0  # s for an exercise


class Memory:
    """The memory of this process and all its children, looked at again and again."""

    def __init__(self) -> None:
        self.highest = 0
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Memory:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watch.join()

    def _look(self) -> None:
        while not self._over.wait(1.0):
            this = psutil.Process()
            self.highest = max(self.highest, sum(map(_pss, [this, *this.children(recursive=True)])))


def _pss(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:  # it is gone meanwhile
        return 0


def graded(handins: Path, out: Path, made: list[Made], each: bool) -> tuple[float, int]:
    """Seconds by the clock, and how many runs there were."""
    begun = time.monotonic()
    walls = ground.strongest(4)
    tasks, _, _ = tasks_in(handins, None)
    terms = AtTwenty(**vars(Terms.agreed(out, handins, None, 4, 20)))
    grading = Grading(tasks, terms, Book(out / "marks.jsonl"), walls.ranks, walls.name, LIMIT, each)
    runs = len(grading.waiting)
    for _ in grading.run(ground.at_once(runs)):
        pass
    took = time.monotonic() - begun
    wrong = list(as_expected(made, {(mark.student, mark.exercise): mark for mark in grading.marks.values()}))
    assert not wrong, "\n".join(wrong)
    return took, runs


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--lab", default="01a_collectives", choices=discovery.labs())
    chosen = parser.parse_args()
    made = seventy(discovery.labs()[chosen.lab])
    with tempfile.TemporaryDirectory() as folder:
        handins = Path(folder) / "handed in"
        handins.mkdir()
        for one in made:
            one.write(handins)
        with Memory() as memory:
            once, few = graded(handins, Path(folder) / "once", made, each=False)
            each, many = graded(handins, Path(folder) / "each", made, each=True)
    jobs = ground.at_once(many)
    beside = f"{ground.strongest(4).name}, {jobs} at once"
    tell(
        [
            Figure(
                f"{len(made)} hand-ins of lab {chosen.lab}, equal answers once",
                once,
                "s",
                60.0 * MINUTES,
                beside=f"{few} runs, {beside}",
            ),
            Figure("the same, each answer for itself", each, "s", 60.0 * MINUTES, beside=f"{many} runs, {beside}"),
            Figure("memory of all its processes (PSS) at its highest", memory.highest / 1e6, "MB", beside=beside),
        ],
        chosen.json,
    )


if __name__ == "__main__":
    main()
