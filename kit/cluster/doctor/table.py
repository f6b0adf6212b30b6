"""Findings for people, line by line as they come, and for programs."""

from __future__ import annotations

import json
import platform
import textwrap
from collections.abc import Sequence
from dataclasses import asdict

from kit.cluster.doctor.finding import Finding

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
    counts = [_count(problems, "problem"), _count(warnings, "warning")]
    said = " and ".join(filter(None, counts))
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
        "findings": [asdict(one) for one in findings],
    }
    return json.dumps(page, indent=2)


def _count(number: int, word: str) -> str:
    return "" if not number else f"1 {word}" if number == 1 else f"{number} {word}s"
