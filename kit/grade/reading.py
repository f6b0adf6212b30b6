"""What a look at a function's text tells of it, where its results are wrong: two slips that no result shows."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

RETURNS = {  # what a call that works in place gives back
    "recv": "the number of the rank that sent",
    **dict.fromkeys(
        ("all_reduce", "broadcast", "reduce", "all_gather", "gather", "scatter", "reduce_scatter", "send"), "None"
    ),
}


def remark(function: Callable[..., Any]) -> str:
    """The first slip in sight, as a sentence; "" where there is none."""
    return next(_remarks(function), "")


def _remarks(function: Callable[..., Any]) -> Iterator[str]:
    for name, line in _values_used(function):
        yield (
            f"Line {line} uses what dist.{name} returns, which is {RETURNS[name]}: it works in place, in the tensor"
            " that it is given."
        )
    for name, number in _numbers_of_the_notebook(function):
        yield (
            f"`{name}` is a variable of the notebook, {number} on every rank and in every world:"
            " dist.get_rank() and dist.get_world_size() tell a rank who it is, and among how many."
        )


def _values_used(function: Callable[..., Any]) -> Iterator[tuple[str, int]]:
    """Calls that work in place, with their lines, whose value goes somewhere."""
    try:
        lines, first = inspect.getsourcelines(function)
    except OSError:
        return
    tree = ast.parse(textwrap.dedent("".join(lines)))
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)) or id(node) in statements:
            continue
        in_background = any(keyword.arg == "async_op" for keyword in node.keywords)
        of_dist = isinstance(node.func.value, ast.Name) and node.func.value.id == "dist"
        if of_dist and node.func.attr in RETURNS and not in_background:
            yield node.func.attr, node.lineno + max(first, 1) - 1


def _numbers_of_the_notebook(function: Callable[..., Any]) -> Iterator[tuple[str, int]]:
    for name in _names(function.__code__):
        value = function.__globals__.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            yield name, value


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
