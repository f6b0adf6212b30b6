"""What one question found out: data, for a table and for programs alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "note", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`note`: good to know. `warning`: the labs run, less well. `problem`: they do not run."""

    name: str  # what was looked at: 'torch', 'run folder'
    status: Status
    found: str
    fix: str = ""  # what to do, as a sentence

    def __post_init__(self) -> None:
        assert self.fix or self.status in ("ok", "note"), "a complaint comes with its fix"
