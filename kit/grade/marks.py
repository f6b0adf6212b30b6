"""The line a check leaves where a notebook runs without a browser: `lockstep check` collects and counts them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

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
    lines = side_file.read_text(encoding="utf-8").split("\n") if side_file.exists() else []
    written = {mark.exercise: mark for line in lines if (mark := _read(line))}
    why = "the notebook did not check it" if ended else "the notebook stopped before its check had an answer"
    return tuple(written.get(name) or Mark(name, UNCHECKED, why, 0.0) for name in dict.fromkeys((*exercises, *written)))


def without_ranks(marks: Sequence[Mark]) -> str | None:
    """A sentence where checks found no ranks to run on; None where they had them."""
    why = next((mark.no_ranks for mark in marks if mark.no_ranks), None)
    return f"no check could run, because there is no cluster here: {why.rstrip('.')}" if why else None


def _read(line: str) -> Mark | None:
    """One line of the side file; None for one that was cut short when its writer was killed."""
    try:
        entry = json.loads(line)
        outcome = entry["outcome"] if entry["outcome"] in (PASSED, NOT_ATTEMPTED) else FAILED
        said = {name: str(entry.get(name, "")) for name in ("stage", "lab", "no_ranks")}
        return Mark(str(entry["exercise"]), outcome, str(entry["sentence"]), float(entry["seconds"]), **said)
    except (ValueError, KeyError, TypeError):
        return None
