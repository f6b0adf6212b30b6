"""A step in a process of its own: started, given its time, ended, and read.

What it says it appends to a file, line by line, so that all of it is there whatever becomes of the process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit.cli.gpu.facts import SAID, Doing, Done, Fact, Failure, Outcome, Place, Said
from kit.clusters.doctor import leftovers

if TYPE_CHECKING:
    from kit.cli.gpu.step import Step
    from kit.clusters.doctor.leftovers import Member

TO_GO = 4.0  # s that the ranks have to follow a step that has ended
SHOWN = 30  # lines of what the process printed last


def carry_out(step: Step, place: Place, limit: float, folder: Path) -> Outcome:
    """Runs one step on `place`, for at most `limit` seconds. folder: private, for its files."""
    folder.mkdir(parents=True)
    said, log = folder / "said", folder / "log"
    said.touch()
    before = {member.folder for member in leftovers.all_members()}
    began = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "kit.cli.gpu", str(step.number), json.dumps(asdict(place)), str(folder), str(limit)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a Ctrl-C is this process's to handle
        )
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                _end(process)
    seconds = time.monotonic() - began
    stayed = _end_what_stayed(before)
    printed = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return outcome(step, heard(said.read_text(encoding="utf-8")), code, seconds, limit, stayed, printed)


def say(message: Said, file: Path) -> None:
    line = json.dumps([type(message).__name__, asdict(message)], default=str)
    with file.open("a", encoding="utf-8") as out:
        out.write(line + "\n")


def heard(text: str) -> list[Said]:
    """What `say` wrote; a last line that was cut short is left out."""
    whole = text[: text.rfind("\n") + 1]
    return [SAID[kind](**fields) for kind, fields in map(json.loads, whole.splitlines())]


def outcome(
    step: Step,
    said: Iterable[Said],
    code: int | None,
    seconds: float,
    limit: float,
    stayed: tuple[int, ...] = (),
    printed: Iterable[str] = (),
) -> Outcome:
    """What came of a step that said so much. code: of its process; None where its time was over. stayed: processes that
    had to be ended after it.
    """
    facts: dict[str, Any] = {}
    failures: list[Failure] = []
    part, sentence = "", None
    for message in said:
        match message:
            case Doing():
                part = message.part
            case Fact(name, value):
                facts[name] = value
            case Failure():
                failures.append(message)
            case Done():
                sentence = message.sentence
    where = f" in {part}" if part else ""
    if code is None:
        failures.append(Failure(f"it was ended after {limit:.0f} s{where}"))
    elif code < 0:
        failures.append(Failure(f"its process was ended by {_signal(-code)}{where}"))
    elif sentence is None and not failures:
        failures.append(Failure(f"its process ended with exit code {code}{where}, and without a word"))
    if stayed and code == 0:
        failures.append(Failure(f"processes {', '.join(map(str, stayed))} outlived it and were ended"))
    seconds = round(seconds, 2)
    if not failures:
        return Outcome(step.number, step.title, "PASS", seconds, sentence or "", facts=facts)
    last = tuple(printed)[-SHOWN:]
    return Outcome(step.number, step.title, "FAIL", seconds, _together(failures), tuple(failures), facts, last)


def _together(failures: list[Failure]) -> str:
    more = len(failures) - 1
    return failures[0].sentence + (f" (and {more} more)" if more else "")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and what it started, which is first asked to: the labs have notebooks to end."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + TO_GO
        with suppress(ProcessLookupError):  # all of them have ended
            os.killpg(process.pid, number)
            while time.monotonic() < deadline:
                process.poll()
                os.killpg(process.pid, 0)
                time.sleep(0.05)
    process.wait()


def _end_what_stayed(before: set[str]) -> tuple[int, ...]:
    """Ends, by number, what is left of the clusters that were started since, once it had time to go by itself."""

    def new() -> list[Member]:
        return [one for one in leftovers.all_members() if one.folder not in before and one.orphan]

    deadline = time.monotonic() + TO_GO
    while (left := new()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return leftovers.end(left)
