"""The line a check leaves where a notebook runs without a browser: `lockstep check` collects and counts them."""

from __future__ import annotations

import json
import os

from kit.check.verdict import Verdict

ENVIRONMENT = "LOCKSTEP_VERDICTS"  # names the file; set by `lockstep check` for the kernel it starts


def write(verdict: Verdict, lab: str, seconds: float) -> None:
    """Append the verdict as one line of JSON to the file the environment names; without one do nothing.

    lab: '01_collectives'. seconds: what the check took. Raises OSError where the file cannot be written.
    """
    path = os.environ.get(ENVIRONMENT)
    if path is None:
        return
    entry = {
        "lab": lab,
        "exercise": verdict.exercise,
        "outcome": verdict.status,
        "stage": verdict.stage,
        "sentence": verdict.sentence,
        "seconds": round(seconds, 3),
        "no_ranks": verdict.no_ranks,
    }
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(entry, ensure_ascii=False) + "\n")
