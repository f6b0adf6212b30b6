"""What came of the steps: lines for the person who waits, and one file for the people at home.

The file has what a failure is understood with, and nothing that tells who ran it: home folders and the user's name are
taken out of every text, and of the environment only what concerns devices and libraries is kept.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit.trace.text import counted

if TYPE_CHECKING:
    from kit.cli.gpu.facts import Outcome

SCHEMA = "lockstep-gpu"
VERSION = 1
FILE = "lockstep-gpu.json"
KEPT = (
    *("NCCL_", "RCCL_", "CCL_", "GLOO_", "FI_", "UCX_"),  # communication
    *("TORCH", "PYTORCH_", "TRITON_", "OMP_NUM_THREADS", "LD_LIBRARY_PATH"),
    *("CUDA_", "NVIDIA_", "HIP_", "ROCR_", "HSA_", "ZE_", "ONEAPI_", "SYCL_"),  # devices
)
SECRET = re.compile(r"TOKEN|SECRET|PASS|KEY|CREDENTIAL|AUTH", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Page:
    """All that is sent home."""

    lockstep: str
    started: str  # ISO 8601, UTC
    host: str
    device: str
    ranks: int
    seconds: float
    finished: bool  # False while steps are still to come, or where somebody interrupted them
    environment: dict[str, str]
    steps: tuple[Outcome, ...]

    @property
    def ok(self) -> bool:
        return not any(step.status == "FAIL" for step in self.steps)

    def as_json(self) -> str:
        page = {"schema": SCHEMA, "version": VERSION, "ok": self.ok, **asdict(self)}
        return json.dumps(without_names(page), indent=1, default=str, ensure_ascii=False) + "\n"


def kept(environment: Mapping[str, str]) -> dict[str, str]:
    """What concerns devices and libraries, without what may be a secret."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(KEPT) and not SECRET.search(name) and not SECRET.search(value)
    }


def without_names(value: Any, home: str | None = None, user: str | None = None) -> Any:
    """The same data, with '~' for the home folder and 'USER' for the user's name where it is a part of a path."""
    home = os.path.expanduser("~") if home is None else home
    user = _user() if user is None else user
    if isinstance(value, str):
        text = value.replace(home, "~") if len(home) > 1 else value
        return re.sub(rf"(?<=/){re.escape(user)}(?=/|$|[\"'\s:,)])", "USER", text) if user else text
    if isinstance(value, Mapping):
        return {without_names(key, home, user): without_names(one, home, user) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_names(one, home, user) for one in value]
    return value


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a list of users
        return ""


def written(page: Page, target: Path) -> Path:
    """Writes the page in one move, and returns where to. ValueError where it cannot be written."""
    part = target.with_name(f"{target.name}.part")
    try:
        part.write_text(page.as_json(), encoding="utf-8")
        part.rename(target)
    except OSError as problem:
        raise ValueError(f"{target} cannot be written ({problem.strerror}): name another file with --to.") from problem
    return target


# ------------------------------------------------------------------------------------------------------- for a person

_TITLE = 36
SHOWN = 5  # failures of a step


def head(steps: int, minutes: float) -> str:
    return f"{counted(steps, 'step')}, each in a process of its own; {minutes:g} minutes at most."


def lines(outcome: Outcome, width: int = 100) -> str:
    """One step: its number, what came of it, its seconds, its title, and the sentence, or what failed."""
    first = f"{outcome.number:>2}  {outcome.status}  {_seconds(outcome):>7}  {outcome.title:<{_TITLE}}"
    indent = " " * 8
    if outcome.status == "FAIL":
        told = [failure.sentence for failure in outcome.failures[:SHOWN]]
        if more := outcome.failures[SHOWN:]:
            told.append(f"and {len(more)} more, which are in the file")
        return "\n".join([first.rstrip(), *(_filled(one, f"{indent}- ", f"{indent}  ", width) for one in told)])
    return "\n".join([first.rstrip(), _filled(outcome.sentence, indent, indent, width)])


def _seconds(outcome: Outcome) -> str:
    return "-" if outcome.status == "SKIP" else f"{outcome.seconds:.1f} s"


def _filled(text: str, first: str, others: str, width: int) -> str:
    return textwrap.fill(text, width, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)


def summary(outcomes: Sequence[Outcome], seconds: float) -> str:
    """'10 passed, 1 failed (step 8), 1 skipped. (94 s)'."""
    counts = [
        f"{len(those)} {word}" + (f" ({_numbers(those)})" if word != "passed" else "")
        for word, status in (("passed", "PASS"), ("failed", "FAIL"), ("skipped", "SKIP"))
        if (those := [one for one in outcomes if one.status == status])
    ]
    return f"{', '.join(counts)}. ({seconds:.0f} s)"


def _numbers(outcomes: Iterable[Outcome]) -> str:
    numbers = [str(one.number) for one in outcomes]
    return f"step{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"


def send_home(target: Path) -> str:
    return f"All of it, with what was measured, is in {target}: send that file home. It names the host, and nobody."
