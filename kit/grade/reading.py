"""What a look at a function's text tells of it: slips that no result shows, or not in every run."""

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


def race(function: Callable[..., Any]) -> str:
    """Where the text changes a tensor while an operation on it is under way, as a sentence; "" where it does not.

    Results may be right all the same: it depends on who is quicker.
    """
    return next(_races(function), "")


def _races(function: Callable[..., Any]) -> Iterator[str]:
    tree, before = _tree(function)
    for block in _blocks(tree):
        begun: dict[str, tuple[str, int]] = {}  # tensor: operation, line; what is not waited for yet
        for statement in block:
            if isinstance(statement, ast.FunctionDef):
                continue  # it has a block of its own, which runs when it is called
            calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
            if any(isinstance(call.func, ast.Attribute) and call.func.attr == "wait" for call in calls):
                begun.clear()
                continue
            if isinstance(statement, ast.AugAssign) and (tensor := ast.unparse(statement.target)) in begun:
                name, line = begun[tensor]
                yield (
                    f"line {statement.lineno + before} changes {tensor} while the {name} of line {line} is under way:"
                    " what comes of it depends on who is quicker; change it before that begins, or after its wait()"
                )
            for name in _bound(statement):
                begun = {tensor: one for tensor, one in begun.items() if tensor.partition(".")[0] != name}
            for call in calls:
                if (operation := _of_dist(call)) and _in_background(call) and call.args:
                    begun[ast.unparse(call.args[0])] = operation, call.lineno + before


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for part in ("body", "orelse", "finalbody"):
            if isinstance(found := getattr(node, part, None), list):
                yield found


def _bound(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


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
    tree, before = _tree(function)
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or id(node) in statements or _in_background(node):
            continue
        if (name := _of_dist(node)) in RETURNS:
            yield name, node.lineno + before


def _tree(function: Callable[..., Any]) -> tuple[ast.Module, int]:
    """The function's text, and how many lines stand before it in its file; an empty one where there is none."""
    try:
        lines, first = inspect.getsourcelines(function)
    except OSError:
        return ast.Module([], []), 0
    return ast.parse(textwrap.dedent("".join(lines))), max(first, 1) - 1


def _of_dist(call: ast.Call) -> str:
    """'all_reduce' of `dist.all_reduce(...)`; "" for another call."""
    match call.func:
        case ast.Attribute(value=ast.Name(id="dist"), attr=name):
            return name
    return ""


def _in_background(call: ast.Call) -> bool:
    return any(keyword.arg == "async_op" for keyword in call.keywords)


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
