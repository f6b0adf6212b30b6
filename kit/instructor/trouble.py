"""Why a notebook did not run to its end, in one sentence.

The exit code decides whether it did: after a time-out or the death of a kernel the saved notebook claims completion.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

_TERMINAL_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PREVIEW = re.compile(r"Here is a preview of the cell contents:\n-+\n(?P<line>.*)")


def sentence(code: int | None, lab_limit: float, cell_limit: float, executed: Path, log: Path) -> str | None:
    """What stopped the notebook; None when nothing did.

    code: papermill's exit code, None when it was ended at `lab_limit`. Limits in seconds. executed: the notebook as
    papermill saved it, which may be missing. log: what papermill printed.
    """
    if code == 0:
        return None
    if code is None:
        return f"the notebook was still running after {lab_limit:g} s and was ended (--lab-limit)"
    said = _TERMINAL_COLOUR.sub("", log.read_text(encoding="utf-8", errors="replace"))
    if "CellTimeoutError" in said:
        return f"a cell ran longer than {cell_limit:g} s and was ended (--cell-limit){_which_cell(said)}"
    if code == 138 or "DeadKernelError" in said or "Kernel died" in said:
        return "the kernel died"
    if code < 0:
        return f"the run was ended by signal {-code}"
    return _error_in(executed) or _last_words(said)


def _which_cell(said: str) -> str:
    match = _PREVIEW.search(said)
    return f": '{match['line'].strip()}'" if match else ""


def _error_in(executed: Path) -> str | None:
    """The first error among the outputs of the notebook, with the number that JupyterLab shows beside the cell."""
    if not executed.exists():
        return None
    for cell in json.loads(executed.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", []):
            if output["output_type"] == "error":
                words = " ".join(_TERMINAL_COLOUR.sub("", output["evalue"]).split())
                return f"cell [{cell['execution_count']}] raises {output['ename']}{': ' if words else ''}{words}"
    return None


def _last_words(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return f"papermill stopped: {lines[-1].strip()}" if lines else "papermill stopped without a word"
