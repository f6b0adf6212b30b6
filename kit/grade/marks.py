"""The line a check leaves where a notebook runs without a browser: `lockstep check` collects and counts them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kit.grade.words import on_one_line, shown

SIDE_FILE = "LOCKSTEP_VERDICTS"  # names the file; set by `lockstep check` for the kernel it starts
PASSED, NOT_ATTEMPTED, FAILED, UNCHECKED = "passed", "not attempted", "failed", "no check ran"


@dataclass(frozen=True)
class Mark:
    """What one check said."""

    exercise: str
    outcome: str  # PASSED, NOT_ATTEMPTED, FAILED or UNCHECKED
    sentence: str
    seconds: float  # the time it took
    stage: str = ""  # where it failed
    lab: str = ""
    no_ranks: str = ""  # why there were none to run on
    seed: int | None = None  # of the inputs: kit.check(function, seed=...) draws them again
    worlds: tuple[int, ...] = ()  # numbers of ranks on which the values were right


def leave(mark: Mark) -> None:
    """Append the mark as one line of JSON to the file the environment names; without one do nothing.

    Raises OSError where the file cannot be written.
    """
    path = os.environ.get(SIDE_FILE)
    if path is None:
        return
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(mark), ensure_ascii=False) + "\n")


def collect(side_file: Path, exercises: Sequence[str] = (), ended: bool = True) -> tuple[Mark, ...]:
    """The last mark of each exercise, those of `exercises` first; one of them without a mark is UNCHECKED.

    ended: the notebook ran to its end, so every check cell was reached.
    """
    why = "the notebook did not check it" if ended else "the notebook stopped before its check had an answer"
    lines: list[bytes] = []
    try:
        lines = side_file.read_bytes().split(b"\n") if side_file.exists() else []
    except OSError as problem:  # the notebook did something to it
        why = f"the file with the verdicts cannot be read ({problem.strerror})"
    written = {mark.exercise: mark for line in lines if (mark := _read(line))}
    return tuple(written.get(name) or Mark(name, UNCHECKED, why, 0.0) for name in dict.fromkeys((*exercises, *written)))


def without_ranks(marks: Sequence[Mark]) -> str | None:
    """A sentence where checks found no ranks to run on; None where they had them."""
    why = next((mark.no_ranks for mark in marks if mark.no_ranks), None)
    return f"no check could run, because there is no cluster here: {why.rstrip('.')}" if why else None


def _read(line: bytes) -> Mark | None:
    """One line of the side file; None for one that was cut short when its writer was killed, or that is no mark."""
    try:
        entry = json.loads(line)
        outcome = entry["outcome"] if entry["outcome"] in (PASSED, NOT_ATTEMPTED) else FAILED
        seed, worlds = entry.get("seed"), entry.get("worlds", ())
        return Mark(
            exercise=on_one_line(str(entry["exercise"])),
            outcome=outcome,
            sentence=shown(str(entry["sentence"])),
            seconds=float(entry["seconds"]),
            stage=on_one_line(str(entry.get("stage", ""))),
            lab=on_one_line(str(entry.get("lab", ""))),
            no_ranks=shown(str(entry.get("no_ranks", ""))),
            seed=None if seed is None else int(seed),
            worlds=tuple(int(world) for world in worlds),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
