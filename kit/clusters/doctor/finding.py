"""What the doctor found out, and how it is told: line by line to people, whole to programs."""

from __future__ import annotations

import json
import platform
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Literal, get_args

from kit.trace.text import counted

Status = Literal["ok", "note", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to one question; made by `ok`, `note`, `warning` and `problem`."""

    status: Status
    found: str
    fix: str = ""  # what to do, as a sentence; '' where nothing is to be done
    name: str = ""  # of what was looked at: 'torch', 'run folder'

    def named(self, name: str) -> Finding:
        return replace(self, name=name)


ok = partial(Finding, "ok")
note = partial(Finding, "note")  # good to know


def warning(found: str, fix: str) -> Finding:
    """The labs run, less well."""
    return Finding("warning", found, fix)


def problem(found: str, fix: str) -> Finding:
    """The labs do not run."""
    return Finding("problem", found, fix)


def sentence(text: str) -> str:
    """'run this' is 'Run this.'."""
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")


def worst(findings: Iterable[Finding]) -> Status:
    return max((finding.status for finding in findings), key=get_args(Status).index)


_NAME, _STATUS = 15, 7


def lines(finding: Finding, width: int = 100) -> str:
    """One finding: its name, its status, what was found and, where there is something to do, what."""
    indent = " " * (_NAME + 2 + _STATUS + 2)
    first = f"{finding.name:<{_NAME}}  {finding.status:<{_STATUS}}  "
    wrapped = [textwrap.fill(finding.found, width, initial_indent=first, subsequent_indent=indent)]
    if finding.fix:
        wrapped.append(
            textwrap.fill(
                finding.fix,
                width,
                initial_indent=f"{indent}do: ",
                subsequent_indent=f"{indent}    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
        )
    return "\n".join(wrapped)


def summary(findings: Sequence[Finding], seconds: float) -> str:
    problems, warnings = (sum(one.status == status for one in findings) for status in ("problem", "warning"))
    if not problems and not warnings:
        return f"The labs run here. ({seconds:.1f} s)"
    counts = [counted(number, word) for number, word in ((problems, "problem"), (warnings, "warning")) if number]
    said = " and ".join(counts)
    end = "the labs do not run here before that is mended" if problems else "the labs run here"
    return f"{said}: {end}. ({seconds:.1f} s)"


def as_json(findings: Sequence[Finding], version: str, ranks: int, seconds: float, ended: Sequence[int] = ()) -> str:
    page = {
        "lockstep": version,
        "host": platform.node(),
        "ranks": ranks,
        "ok": not any(one.status == "problem" for one in findings),
        "seconds": round(seconds, 2),
        "ended": list(ended),  # left-over processes
        "findings": [{"name": one.name} | asdict(one) for one in findings],
    }
    return json.dumps(page, indent=2)
