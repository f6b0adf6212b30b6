"""The text of functions, and what code says of itself without being run."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

# of kit or cluster: what recordings are made of
CALLS = frozenset({"step", "record", "record_on", "memory", "overlap", "threads", "bandwidth"})


def source_of(function: Callable[..., Any]) -> str:
    """The function's text as it is now; '' where it has none."""
    try:
        return textwrap.dedent(inspect.getsource(function)).strip()
    except (OSError, TypeError):
        return ""


def calls(text: str) -> bool:
    """Whether a cell's code steps, records or sweeps: `kit.step(...)`, `cluster.record(...)`."""
    try:
        tree = ast.parse(text)
    except SyntaxError:  # magics: what they run is not on ranks
        return False
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(
        isinstance(found, ast.Attribute)
        and found.attr in CALLS
        and isinstance(found.value, ast.Name)
        and found.value.id in ("kit", "cluster")
        for found in called
    )
