"""The notebook cell that runs now, what recordings are found by; and what the text of cells and functions says."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
import textwrap
from collections.abc import Callable
from html import escape
from typing import Any

_CALLS = frozenset({"step", "record", "bandwidth"})  # need ranks
_told: list[str] = []  # the cell in which something was last announced


def digest(text: str) -> str:
    """Stands for the text of a cell; blank lines around it do not count."""
    return hashlib.sha256(text.strip().encode()).hexdigest()[:16]


def running() -> tuple[str, str]:
    """(digest of its text, name of this execution) of the cell that runs; ('', '') where no notebook runs one."""
    shell = _shell()
    if shell is None:
        return "", ""
    parent: dict[str, Any] = shell.get_parent() or {}
    header = parent.get("header", {})
    if header.get("msg_type", "execute_request") != "execute_request":
        return "", ""  # a button was pressed
    text = parent.get("content", {}).get("code") or shell.history_manager.input_hist_raw[-1]
    return digest(text), str(header.get("msg_id") or shell.execution_count)


def announce(sentence: str) -> None:
    """Shows a sentence once in each execution of a cell; prints it where there is no notebook."""
    shell = _shell()
    if shell is None:
        print(sentence)
        return
    execution = running()[1]
    if not execution or _told[-1:] == [execution]:
        return
    _told[:] = [execution]
    from IPython.display import display

    page = f"<div class='ls-recorded' role='note' style='{_STYLE}'>{escape(sentence)}</div>"
    display({"text/plain": sentence, "text/html": page}, raw=True)


_STYLE = (
    "font-family:var(--jp-ui-font-family, system-ui, sans-serif);font-size:13px;line-height:1.5;max-width:840px;"
    "padding:4px 12px;border-left:4px solid #8c959f;color:var(--jp-ui-font-color1, #1f2328)"
)


def calls(text: str) -> bool:
    """Whether a cell's code steps, records or sweeps: `kit.step(...)`, `kit.options(...).record(...)`."""
    try:
        tree = ast.parse(text)
    except SyntaxError:  # magics: what they run is not on ranks
        return False
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(f, ast.Attribute) and f.attr in _CALLS and _root(f) in ("kit", "cluster") for f in called)


def source_of(function: Callable[..., Any]) -> str:
    """The function's text as it is now; '' where it has none."""
    try:
        return textwrap.dedent(inspect.getsource(function)).strip()
    except (OSError, TypeError):
        return ""


def _root(expression: ast.expr) -> str:
    """'kit' of `kit.options(ranks=2).record`."""
    while isinstance(expression, ast.Attribute | ast.Call):
        expression = expression.value if isinstance(expression, ast.Attribute) else expression.func
    return expression.id if isinstance(expression, ast.Name) else ""


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return shell if getattr(shell, "kernel", None) is not None else None
